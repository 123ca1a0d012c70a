// Each constraint of optimizers, updates, packs and powi has one smallest
// violation here.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{'scalars' takes 1 arguments, expected 2}}
msamp.optimizer @optimizer_C1_hyper_without_an_argument states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{argument 0 of 'scalars' is 'f64', expected 'i64'}}
msamp.optimizer @optimizer_C1_step_is_a_float states() hyper()
scalars(%step: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{argument 1 of 'scalars' is 'f32', expected 'f64'}}
msamp.optimizer @optimizer_C1_hyper_is_f32 states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f32) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C1_scalars_yield_f32 states() hyper()
scalars(%step: i64) {
  %0 = arith.constant 1.0 : f32
  // expected-error @below {{value 0 of 'scalars' is 'f32', expected 'f64'}}
  msamp.yield %0 : f32
} body(%param: f32, %grad: f32, %scalar: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{'body' takes 2 arguments, expected 3}}
msamp.optimizer @optimizer_C2_state_without_an_argument states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param, %grad : f32, f32
}

// -----

// expected-error @below {{'body' takes 2 arguments, expected 3}}
msamp.optimizer @optimizer_C2_scalar_without_an_argument states() hyper()
scalars(%step: i64) {
  %0 = arith.constant 1.0 : f64
  msamp.yield %0 : f64
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{argument 2 of 'body' is 'f64', expected 'f32'}}
msamp.optimizer @optimizer_C2_scalar_is_f64 states() hyper()
scalars(%step: i64) {
  %0 = arith.constant 1.0 : f64
  msamp.yield %0 : f64
} body(%param: f32, %grad: f32, %scalar: f64) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{'body' yields 1 values, expected 2}}
msamp.optimizer @optimizer_C3_state_is_not_yielded states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C3_body_yields_f64 states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %0 = arith.constant 1.0 : f64
  // expected-error @below {{value 0 of 'body' is 'f64', expected 'f32'}}
  msamp.yield %0 : f64
}

// -----

msamp.optimizer @optimizer_C4_op_outside_of_the_set states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'math.exp' is not elementwise maths that msamp defines bit for bit; see docs/Numerics.md for the set}}
  %0 = math.exp %param : f32
  msamp.yield %0 : f32
}

// -----

msamp.optimizer @optimizer_C4_fast_math states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'arith.addf' has fast-math flags; results must not depend on the target}}
  %0 = arith.addf %param, %grad fastmath<contract> : f32
  msamp.yield %0 : f32
}

// -----

msamp.optimizer @optimizer_C4_type_outside_of_the_set states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'arith.constant' works on 'f16', expected f32, f64, i1, i32 or i64 scalars}}
  %0 = arith.constant 1.0 : f16
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_powi_in_a_body states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %n = arith.constant 2 : i64
  // expected-error @below {{'msamp.powi' belongs in 'scalars', once a tensor, not in a body}}
  %0 = msamp.powi %param, %n : f32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_fma_in_scalars states() hyper()
scalars(%step: i64) {
  %0 = arith.constant 1.0 : f64
  // expected-error @below {{'math.fma' is defined for f32 in a body only}}
  %1 = math.fma %0, %0, %0 : f64
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_fma_of_f64 states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %0 = arith.constant 1.0 : f64
  // expected-error @below {{'math.fma' is defined for f32 in a body only}}
  %1 = math.fma %0, %0, %0 : f64
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_shift_by_a_variable states() hyper()
scalars(%step: i64) {
  // expected-error @below {{'arith.shli' must shift by a constant below the width of 'i64'}}
  %0 = arith.shli %step, %step : i64
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_shift_by_the_width states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %0 = arith.bitcast %param : f32 to i32
  %n = arith.constant 32 : i32
  // expected-error @below {{'arith.shrui' must shift by a constant below the width of 'i32'}}
  %1 = arith.shrui %0, %n : i32
  msamp.yield %param : f32
}

// -----

msamp.optimizer @optimizer_C4_minnum_is_not_of_the_set states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  // expected-error @below {{'arith.minnumf' is not elementwise maths that msamp defines bit for bit}}
  %0 = arith.minnumf %param, %grad : f32
  msamp.yield %param : f32
}

// -----

// expected-error @below {{declares hyper-parameter "lr" twice}}
msamp.optimizer @optimizer_C5_hyper_twice states() hyper(lr = 0.1 in [0.0, inf), lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64, %lr2: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{state name "velocity" is taken or reserved}}
msamp.optimizer @optimizer_C5_state_twice states(velocity, velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %a: f32, %b: f32) {
  msamp.yield %param, %a, %b : f32, f32, f32
}

// -----

// expected-error @below {{state name "master_weight" is taken or reserved}}
msamp.optimizer @optimizer_C5_state_called_like_a_role states(master_weight) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %a: f32) {
  msamp.yield %param, %a : f32, f32
}

// -----

// expected-error @below {{state name "wide" is taken or reserved}}
msamp.optimizer @optimizer_C5_state_called_like_a_bundle states(wide) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %a: f32) {
  msamp.yield %param, %a : f32, f32
}

// -----

// expected-error @below {{default of hyper-parameter "beta" is 1.000000e+00, outside of [0, 1)}}
msamp.optimizer @optimizer_C6_default_at_the_upper_bound states() hyper(beta = 1.0 in [0.0, 1.0))
scalars(%step: i64, %beta: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{default of hyper-parameter "lr" is -1.000000e+00, outside of [0, inf)}}
msamp.optimizer @optimizer_C6_default_below_the_lower_bound states() hyper(lr = -1.0 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

// expected-error @below {{state range is 'positive', expected signed or nonnegative}}
msamp.optimizer @optimizer_unknown_range states(velocity : positive) hyper()

// -----

msamp.optimizer @optimizer_without_a_yield states() hyper()
scalars(%step: i64) {
  // expected-error @below {{block with no terminator}}
  %0 = arith.constant 1.0 : f64
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -----

func.func @yield_outside_of_an_optimizer() {
  // expected-error @below {{expects parent op to be one of 'msamp.optimizer, msamp.wrapped_update'}}
  msamp.yield
}

// -----

func.func @powi_C1_types_differ(%b: f32, %e: i64) {
  // expected-error @below {{failed to verify that all of {base, result} have same type}}
  %0 = "msamp.powi"(%b, %e) : (f32, i64) -> f64
  return
}

// -----

func.func @powi_of_an_integer(%b: i32, %e: i64) {
  // expected-error @below {{operand #0 must be 32-bit float or 64-bit float, but got 'i32'}}
  %0 = msamp.powi %b, %e : i32
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @momentum states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
func.func @wrapped_update_C2_state_is_missing(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{has 0 state operands, but optimizer @momentum has 1 states}}
  %0 = msamp.wrapped_update @momentum weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

func.func @wrapped_update_C3_another_layout(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@n, grad>) {
  // expected-error @below {{operand of role 'grad' is '!msamp.bundle<@n, grad>', expected !msamp.bundle<@m, grad>}}
  %0 = msamp.wrapped_update @o weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@n, grad>)
  return
}

// -----

func.func @wrapped_update_C3_another_role(%w: !msamp.bundle<@m, grad>, %g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{operand of role 'weight' is '!msamp.bundle<@m, grad>', expected !msamp.bundle<@m, weight>}}
  %0 = msamp.wrapped_update @o weight(%w : !msamp.bundle<@m, grad>) grad(%g : !msamp.bundle<@m, grad>)
  return
}

// -----

func.func @wrapped_update_C3_bundle_and_tensor(%w: tensor<4xf32>, %m: tensor<4xf32>, %g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{operand of role 'grad' is '!msamp.bundle<@m, grad>', but the weight is 'tensor<4xf32>'}}
  %0:2 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) master_weight(%m : tensor<4xf32>) grad(%g : !msamp.bundle<@m, grad>)
  return
}

// -----

func.func @wrapped_update_C3_another_shape(%w: tensor<4xf32>, %m: tensor<2x2xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{operand of role 'master_weight' is 'tensor<2x2xf32>', but the weight is 'tensor<4xf32>'}}
  %0:2 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) master_weight(%m : tensor<2x2xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

msamp.optimizer @momentum states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
func.func @wrapped_update_C3_another_state(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, speed>) {
  // expected-error @below {{operand of role 'velocity' is '!msamp.bundle<@m, speed>', expected !msamp.bundle<@m, velocity>}}
  %0:2 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%s : !msamp.bundle<@m, speed>)
  return
}

// -----

func.func @wrapped_update_C4_pre_takes_one(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{'pre' takes 1 arguments, expected 2}}
  %0 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) pre {
  ^bb0(%grad: f32):
    msamp.yield %grad : f32
  }
  return
}

// -----

func.func @wrapped_update_C4_post_takes_f64(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{argument 1 of 'post' is 'f64', expected 'f32'}}
  %0 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) post {
  ^bb0(%before: f32, %after: f64):
    msamp.yield %before : f32
  }
  return
}

// -----

func.func @wrapped_update_C4_post_yields_two(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{'post' yields 2 values, expected 1}}
  %0 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) post {
  ^bb0(%before: f32, %after: f32):
    msamp.yield %before, %after : f32, f32
  }
  return
}

// -----

func.func @wrapped_update_C4_op_outside_of_the_set(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  %0 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) pre {
  ^bb0(%param: f32, %grad: f32):
    // expected-error @below {{'math.tanh' is not elementwise maths}}
    %t = math.tanh %grad : f32
    msamp.yield %t : f32
  }
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @update_C1_input_is_not_wide(%p: !msamp.bundle<@m, wide>, %g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{has a value of type '!msamp.bundle<@m, grad>', expected wide bundles over one layout}}
  %0 = msamp.update @plain(%p, %g) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, wide>
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @update_C1_another_layout(%p: !msamp.bundle<@m, wide>, %g: !msamp.bundle<@n, wide>) {
  // expected-error @below {{has a value of type '!msamp.bundle<@n, wide>', expected wide bundles over one layout}}
  %0 = msamp.update @plain(%p, %g) : (!msamp.bundle<@m, wide>, !msamp.bundle<@n, wide>) -> !msamp.bundle<@m, wide>
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @update_C2_an_input_too_many(%p: !msamp.bundle<@m, wide>) {
  // expected-error @below {{has 3 inputs and 1 outputs, expected 2 and 1}}
  %0 = msamp.update @plain(%p, %p, %p) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @update_of_an_unknown_optimizer(%p: !msamp.bundle<@m, wide>) {
  // expected-error @below {{optimizer @missing is not defined}}
  %0 = msamp.update @missing(%p, %p) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @pack_C1_result_is_wide(%a: tensor<4xf32>) {
  // expected-error @below {{'wide' is not a role that is stored}}
  %0 = msamp.pack(%a) : (tensor<4xf32>) -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @unpack_C1_bundle_is_scalar(%b: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'scalar' is not a role that is stored}}
  %0 = msamp.unpack(%b) : (!msamp.bundle<@m, scalar>) -> (tensor<4xf32>)
  return
}
