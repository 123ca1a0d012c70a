// Updates that cannot become one are refused, with the op that stands in the way.
// RUN: msamp-opt %s --msamp-pack-updates --split-input-file --verify-diagnostics

func.func @optimizer_is_not_resolved(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{optimizer @plain is not defined; run msamp-resolve-optimizers first}}
  %0 = msamp.wrapped_update @plain weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @name_is_taken(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-note @below {{first one here}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  // expected-error @below {{updates a second tensor called "a"}}
  %1 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @result_is_used_between(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{cannot be packed: its result is used before the last update}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  // expected-note @below {{used here}}
  %n = arith.negf %0 : tensor<4xf32>
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%n : tensor<4xf32>)
  return %1 : tensor<4xf32>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @result_is_used_by_the_last_update(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{cannot be packed: its result is used before the last update}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  // expected-note @below {{used here}}
  %1 = msamp.wrapped_update @plain name "b" weight(%0 : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return %1 : tensor<4xf32>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @result_is_used_in_a_region_between(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>, %c: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error @below {{cannot be packed: its result is used before the last update}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  %1 = scf.if %c -> tensor<4xf32> {
    // expected-note @below {{used here}}
    scf.yield %0 : tensor<4xf32>
  } else {
    scf.yield %w : tensor<4xf32>
  }
  %2 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
