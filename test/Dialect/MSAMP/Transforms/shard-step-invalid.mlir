// What cannot be sharded, and options that mean nothing.
// RUN: msamp-opt %s --msamp-shard-step="policy=flat ranks=2" --split-input-file --verify-diagnostics
// RUN: not msamp-opt %s --split-input-file --msamp-shard-step="policy=rows" 2>&1 | FileCheck %s --check-prefix=POLICY
// RUN: not msamp-opt %s --split-input-file --msamp-shard-step="grad-wire=e9m9" 2>&1 | FileCheck %s --check-prefix=WIRE
// RUN: not msamp-opt %s --split-input-file --msamp-shard-step="collectives=magic" 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not msamp-opt %s --split-input-file --msamp-shard-step="reduction=max" 2>&1 | FileCheck %s --check-prefix=REDUCTION
// POLICY: error: unknown sharding 'rows', expected none, fsdp2, flat or tensor
// WIRE: error: unknown wire format 'e9m9', expected e4m3, e5m2, bf16 or f32
// KIND: error: unknown collectives 'magic', expected auto, separate or fused
// REDUCTION: error: unknown reduction 'max', expected mean or sum

msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @computed(%w: !msamp.bundle<@m, weight>, %t: tensor<4xf32>) -> !msamp.bundle<@m, weight> {
  %g = msamp.pack(%t) : (tensor<4xf32>) -> !msamp.bundle<@m, grad>
  // expected-error @below {{cannot be sharded: its gradient is no argument of the function that it alone uses}}
  %0:2 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>) states(%w : !msamp.bundle<@m, weight>)
  return %0#0 : !msamp.bundle<@m, weight>
}

// -----

// expected-note @below {{which this op has}}
func.func private @dp()
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  // expected-error @below {{a sharded step of 2 ranks needs the name @dp}}
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// -----

msamp.layout @m {
  // expected-error @below {{@c has no format for 'grad'; run msamp-infer-storage first}}
  msamp.storage_class @c {weight = #msamp.storage<f32>}
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// -----

msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
// expected-error @below {{'func.func' op @step has the attribute msamp.sharding, but msamp.group names no process group}}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight>
    attributes {msamp.sharding = #msamp.sharding_policy<flat>, msamp.group = @missing} {
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// -----

// expected-note @below {{group defined here}}
msamp.process_group @dp ranks(4)
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight>
    attributes {msamp.sharding = #msamp.sharding_policy<flat>, msamp.group = @dp} {
  // expected-error @below {{'msamp.wrapped_update' op is to be sharded flat over 2 ranks, but its function is sharded flat over 4}}
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}
