// Optimizers to choose from.
msamp.optimizer @first states() hyper(lr = 0.5 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %lr: f32) {
  %update = arith.mulf %lr, %grad : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new : f32
}
msamp.optimizer @second states() hyper(lr = 0.25 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %lr: f32) {
  %update = arith.mulf %lr, %grad : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new : f32
}
