// Bounds that the optimizer's body does not give are refused, with the op that has none.
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step --split-input-file --verify-diagnostics

// The first op on the way without a bound is named, not those that use it.
msamp.optimizer @ratio states(s : signed) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %s: f32) {
  %sum = arith.addf %s, %grad : f32
  // expected-note @below {{this op's result has no bound}}
  %ratio = arith.divf %sum, %param : f32
  %more = arith.mulf %ratio, %sum : f32
  %new = arith.subf %more, %grad : f32
  msamp.yield %param, %new : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@c scales 's' by a bound, but there is none; use current or delayed scaling}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, s = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @division_by_an_element(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, s>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, s>) {
  %0:2 = msamp.wrapped_update @ratio weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
      states(%s : !msamp.bundle<@m, s>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, s>
}

// -----

msamp.optimizer @bits states(s : signed) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %s: f32) {
  %bits = arith.bitcast %grad : f32 to i32
  // expected-note @below {{this op's result has no bound}}
  %again = arith.bitcast %bits : i32 to f32
  %new = arith.addf %again, %s : f32
  msamp.yield %param, %new : f32, f32
}
msamp.layout @m {
  // expected-error @below {{@c scales 's' by a bound, but there is none; use current or delayed scaling}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, s = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @made_of_bits(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, s>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, s>) {
  %0:2 = msamp.wrapped_update @bits weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
      states(%s : !msamp.bundle<@m, s>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, s>
}

// -----

// A weight is quantized from the stored master, not from what the body gives; nor may it
// be scaled by a bound where there is no master.
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %new = arith.subf %param, %grad : f32
  msamp.yield %new : f32
}
msamp.layout @m {
  // expected-error @below {{@c scales 'weight' by a bound, but there is none; use current or delayed scaling}}
  msamp.storage_class @c {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>, master_weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @weight_beside_a_master(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>) {
  // expected-note @below {{only states may have one}}
  %0:2 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %new = arith.subf %param, %grad : f32
  msamp.yield %new : f32
}
msamp.layout @m {
  // expected-error @below {{@c scales 'weight' by a bound, but there is none; use current or delayed scaling}}
  msamp.storage_class @c {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @weight_without_a_master(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  // expected-note @below {{only states may have one}}
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}
