// Layouts that cannot be completed are refused, with what stands against it.
// RUN: msamp-opt %s --msamp-infer-storage --split-input-file --verify-diagnostics

func.func @one_tensor(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{updates a single tensor; run msamp-pack-updates first}}
  %0 = msamp.wrapped_update @plain weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
func.func @no_layout(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  // expected-error @below {{layout @m is not defined}}
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

msamp.layout @m {
}
func.func @no_optimizer(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  // expected-error @below {{optimizer @plain is not defined; run msamp-resolve-optimizers first}}
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
}
func.func @second_update(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  // expected-note @below {{first update here}}
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  // expected-error @below {{is a second update over layout @m}}
  %1:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@c has a format for "speed", which is no role; roles are weight, master_weight, grad, velocity}}
  msamp.storage_class @c level(O3) {speed = #msamp.storage<f32>}
}
func.func @unknown_role(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@c has neither a level nor a format for 'velocity'}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @format_is_missing(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-note @below {{but storage class @c keeps master weights}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, master_weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>}
}
func.func @master_is_missing(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  // expected-error @below {{has no master_weight operand}}
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@g sets "lr" to -1.000000e+00, outside of [0, inf)}}
  msamp.param_group @g {lr = -1.0 : f64}
}
func.func @hyper_out_of_range(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@g sets "lr" to nan, outside of [0, inf)}}
  msamp.param_group @g {lr = 0x7FF8000000000000 : f64}
}
func.func @hyper_is_nan(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

// expected-note @below {{optimizer defined here}}
msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@g sets "rate", which is no hyper-parameter of @plain}}
  msamp.param_group @g {rate = 1.0 : f64}
}
func.func @hyper_is_unknown(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}
