// What verifiers of groups, sharded layouts and collectives say.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{'msamp.process_group' op @dp has 0 ranks, expected 1 to 65536}}
msamp.process_group @dp ranks(0)

// -----

// expected-error @below {{'msamp.process_group' op @dp has -2 ranks, expected 1 to 65536}}
msamp.process_group @dp ranks(-2)

// -----

// expected-error @below {{'msamp.process_group' op @dp has 4294967298 ranks, expected 1 to 65536}}
msamp.process_group @dp ranks(4294967298)

// -----

// expected-note @below {{group defined here}}
msamp.process_group @dp ranks(1)
func.func @f(%g: tensor<?xf32>) {
  // expected-error @below {{'msamp.reduce_scatter' op has parts 'tensor<?xf32>' of 'tensor<?xf32>', expected dimension 0 in 1 equal parts}}
  %0 = msamp.reduce_scatter %g over @dp : tensor<?xf32> -> tensor<?xf32>
  return
}

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
  // expected-error @below {{format of role "grad" is #msamp.storage<bf16>; gradients of a sharded layout are means or sums, in f32}}
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<bf16>, wire = #msamp.storage<bf16>}
}

// -----

// expected-note @below {{layout defined here}}
msamp.layout @m {}
func.func @f(%w: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'msamp.all_gather' op is over group @dp, but layout @m is not sharded}}
  %0 = msamp.all_gather %w over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(2)
// expected-note @below {{layout defined here}}
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op is over group @tp, but layout @m is sharded over @dp}}
  %0 = msamp.reduce_scatter %g over @tp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  return
}

// -----

func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op layout @m is not defined}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{'msamp.reduce_scatter' op takes '!msamp.bundle<@m, grad>', expected a bundle of "wire"}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, grad>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%w: !msamp.bundle<@m, wide>) {
  // expected-error @below {{'msamp.all_gather' op takes '!msamp.bundle<@m, wide>', expected a bundle that tensors store}}
  %0 = msamp.all_gather %w over @dp : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, wide>
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

// -----

func.func @f(%g: tensor<4xf32>) {
  // expected-error @below {{'msamp.all_reduce' op group @dp is not defined}}
  %0 = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
func.func @f(%g: tensor<4xf32>) {
  // expected-error @below {{'msamp.all_reduce' op takes 'tensor<4xf32>' and gives 'tensor<2xf32>', of another shape}}
  %0 = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

// expected-note @below {{group defined here}}
msamp.process_group @dp ranks(3)
func.func @f(%g: tensor<4x2xf32>) {
  // expected-error @below {{'msamp.reduce_scatter' op has parts 'tensor<2x2xf32>' of 'tensor<4x2xf32>', expected dimension 0 in 3 equal parts}}
  %0 = msamp.reduce_scatter %g over @dp : tensor<4x2xf32> -> tensor<2x2xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
func.func @f(%w: tensor<2xf16>) {
  // expected-error @below {{'msamp.all_gather' op takes 'tensor<2xf16>' and gives 'tensor<4xf32>', of another format}}
  %0 = msamp.all_gather %w over @dp : tensor<2xf16> -> tensor<4xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op takes '!msamp.bundle<@m, wire>' and gives 'tensor<4xf32>'; both are bundles, or none is}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> tensor<4xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op gives '!msamp.bundle<@m, weight>', expected '!msamp.bundle<@m, grad>'}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, weight>
  return
}

// -----

msamp.process_group @dp ranks(2)
// expected-error @below {{'msamp.layout' op reduces gradients by max, expected mean or sum}}
msamp.layout @m sharding(flat over @dp by max) {}

// -----

msamp.process_group @dp ranks(2)
// expected-note @below {{layout defined here}}
msamp.layout @m sharding(flat over @dp by sum) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.reduce_scatter' op reduces by mean, but layout @m by sum}}
  %0 = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  return
}

// -----

msamp.process_group @dp ranks(2)
func.func @f(%g: tensor<4xf32>) {
  // expected-error @below {{'msamp.reduce_scatter' op reduces by max, expected mean or sum}}
  %0 = msamp.reduce_scatter %g over @dp by max : tensor<4xf32> -> tensor<2xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
func.func @f(%g: tensor<4xf32>) {
  // expected-error @below {{'msamp.all_reduce' op takes 'tensor<4xf32>' and gives 'tensor<4xf32>'; the maximum over ranks is of one f32 a tensor}}
  %0 = msamp.all_reduce %g over @dp by max : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%g: !msamp.bundle<@m, wire>) {
  // expected-error @below {{'msamp.all_reduce' op takes '!msamp.bundle<@m, wire>' and gives '!msamp.bundle<@m, grad>'; of bundles there is only the maximum, of amaxes}}
  %0 = msamp.all_reduce %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  return
}

// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(2)
// expected-note @below {{layout defined here}}
msamp.layout @m sharding(flat over @dp) {}
func.func @f(%a: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'msamp.all_reduce' op is over group @tp, but layout @m is sharded over @dp}}
  %0 = msamp.all_reduce %a over @tp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @f() {
  // expected-error @below {{'msamp.barrier' op group @dp is not defined}}
  msamp.barrier over @dp
  return
}
