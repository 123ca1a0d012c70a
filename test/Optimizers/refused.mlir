// What is not elementwise maths with bits defined everywhere is refused by name.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

msamp.optimizer @libm_call states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'math.exp' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = math.exp %param : f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @matrix_multiplication states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'tensor.empty' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %t = tensor.empty() : tensor<2x2xf32>
  %m = linalg.matmul ins(%t, %t : tensor<2x2xf32>, tensor<2x2xf32>) outs(%t : tensor<2x2xf32>) -> tensor<2x2xf32>
  msamp.yield %param : f32
}

// -----

msamp.optimizer @branch states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %c = arith.cmpf olt, %param, %grad : f32
  // expected-error @below {{'scf.if' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  scf.if %c {
  }
  msamp.yield %param : f32
}

// -----

func.func private @mine(f32) -> f32
msamp.optimizer @call states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'func.call' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = func.call @mine(%param) : (f32) -> f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @reduction_over_elements states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'vector.broadcast' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %v = vector.broadcast %param : f32 to vector<4xf32>
  %s = vector.reduction <add>, %v : vector<4xf32> into f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @fast_math states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'arith.mulf' has fast-math flags; results must not depend on the target}}
  %0 = arith.mulf %param, %grad fastmath<fast> : f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @fast_math_of_fma states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'math.fma' has fast-math flags; results must not depend on the target}}
  %0 = math.fma %param, %grad, %grad fastmath<nnan> : f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @half_precision states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'arith.truncf' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = arith.truncf %param : f32 to f16
  msamp.yield %param : f32
}

// -----

msamp.optimizer @division_of_integers states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %i = arith.constant 3 : i32
  // expected-error @below {{'arith.divsi' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = arith.divsi %i, %i : i32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @libm_call_in_scalars states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  // expected-error @below {{'math.powf' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = math.powf %lr, %lr : f64
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
