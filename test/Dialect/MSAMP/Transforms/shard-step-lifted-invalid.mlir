// A function that says how it is sharded, and options that say otherwise.
// RUN: msamp-opt %s --msamp-shard-step="reduction=mean collectives=separate" --split-input-file --verify-diagnostics

msamp.process_group @dp ranks(2)
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight>
    attributes {msamp.sharding = #msamp.sharding_policy<flat>, msamp.group = @dp, msamp.reduction = #msamp.rank_reduction<sum>} {
  // expected-error @below {{'msamp.wrapped_update' op is to reduce its gradient by mean, but its function does by sum}}
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// -----

// What an option asks for, and what the graph says of its group.
// expected-note @below {{group defined here}}
msamp.process_group @dp ranks(2) collectives(fused)
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight>
    attributes {msamp.sharding = #msamp.sharding_policy<flat>, msamp.group = @dp} {
  // expected-error @below {{'msamp.wrapped_update' op is to have separate collectives, but its group has others}}
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}
