// What verifiers of groups, sharded layouts and collectives say.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{'msamp.process_group' op @dp has 0 ranks, expected 1 or more}}
msamp.process_group @dp ranks(0)

// -----

// expected-error @below {{'msamp.process_group' op @dp has -2 ranks, expected 1 or more}}
msamp.process_group @dp ranks(-2)

// -----

// expected-error @below {{'msamp.layout' op group @dp is not defined}}
msamp.layout @m sharding(flat over @dp) {}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {
  // expected-error @below {{'msamp.storage_class' op @c of a sharded layout has no format for "wire"}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {
  // expected-error @below {{format of role "grad" is #msamp.storage<bf16>; gradients of a sharded layout are means, in f32}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<bf16>, wire = #msamp.storage<bf16>}
}

// -----

// expected-note @below {{layout defined here}}
msamp.layout @m {}
func.func @f(%w: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'msamp.all_gather' op is over group @dp, but layout @m is not sharded}}
  %0 = msamp.all_gather %w over @dp : !msamp.bundle<@m, weight>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(2)
// expected-note @below {{layout defined here}}
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op is over group @tp, but layout @m is sharded over @dp}}
  %0 = msamp.reduce_scatter %g over @tp : !msamp.bundle<@m, wire>
  return
}

// -----

func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op layout @m is not defined}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{'msamp.reduce_scatter' op takes '!msamp.bundle<@m, grad>', expected a bundle of "wire"}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, grad>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%w: !msamp.bundle<@m, wide>) {
  // expected-error @below {{'msamp.all_gather' op takes '!msamp.bundle<@m, wide>', expected a bundle that tensors store}}
  %0 = msamp.all_gather %w over @dp : !msamp.bundle<@m, wide>
  return
}

// -----

// expected-error @below {{'msamp.optimizer' op state name "wire" is taken or reserved}}
msamp.optimizer @o states(wire) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %wire: f32) {
  msamp.yield %param, %wire : f32, f32
}
