// A narrow weight without a wider master loses small updates: a warning says so.
// RUN: msamp-opt %s --msamp-infer-storage --split-input-file --verify-diagnostics

msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  // expected-warning @below {{storage class @c keeps its weight in 'bf16' and nothing wider; small updates will be rounded away}}
  msamp.storage_class @c {weight = #msamp.storage<bf16>, grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @bf16_weight(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
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
  // expected-warning @below {{storage class @c keeps its weight in 'f8E4M3FN' and nothing wider; small updates will be rounded away}}
  msamp.storage_class @c {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @fp8_weight(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>) {
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
  // expected-warning @below {{storage class @c keeps its master_weight in 'bf16' and nothing wider; small updates will be rounded away}}
  msamp.storage_class @c {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, master_weight = #msamp.storage<bf16>, grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @bf16_master(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %m: !msamp.bundle<@m, master_weight>, %v: !msamp.bundle<@m, velocity>) {
  %0:3 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) master_weight(%m : !msamp.bundle<@m, master_weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}

// -----

// An f16 weight, or a wide master, says nothing.
msamp.optimizer @plain states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<bf16>, master_weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, velocity = #msamp.storage<bf16>}
  msamp.storage_class @d {weight = #msamp.storage<f16>, grad = #msamp.storage<bf16>, velocity = #msamp.storage<f32>}
}
func.func @no_warning(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %m: !msamp.bundle<@m, master_weight>, %v: !msamp.bundle<@m, velocity>) {
  %0:3 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) master_weight(%m : !msamp.bundle<@m, master_weight>) grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return
}
