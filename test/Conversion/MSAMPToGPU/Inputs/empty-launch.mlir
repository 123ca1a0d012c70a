// A launch without kernels.
msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
}
