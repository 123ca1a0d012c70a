// Where ranks of a step do not meet, and scales that they would choose otherwise.
// RUN: msamp-opt %s --msamp-fuse-step --split-input-file --verify-diagnostics

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m sharding(fsdp2 over @dp) {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>, wire = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, wire>) -> !msamp.bundle<@m, weight> {
  %r = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %r : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  // expected-error @below {{'msamp.compute_scale' op takes the amax of a rank's part of tensors; in layout @m, whose tensors ranks share, it must come from an msamp.all_reduce by max}}
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  %all = msamp.all_gather %q over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  return %all : !msamp.bundle<@m, weight>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m sharding(fsdp2 over @dp) {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, wire = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, wire>) -> !msamp.bundle<@m, weight> {
  %r = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %r : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  // expected-error @below {{'msamp.barrier' op of @dp is neither before a reduce_scatter nor after an all_gather over that group; ranks of a step meet nowhere else}}
  msamp.barrier over @dp
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  return %w : !msamp.bundle<@m, weight>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m sharding(fsdp2 over @dp) {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>, wire = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, wire>) -> !msamp.bundle<@m, weight> {
  %r = msamp.reduce_scatter %g over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %r : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %b = msamp.all_reduce %a over @dp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  %c = msamp.all_reduce %b over @dp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  // expected-error @below {{'msamp.compute_scale' op does not take an msamp.amax, nor one msamp.all_reduce of it}}
  %s = msamp.compute_scale %c, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  %all = msamp.all_gather %q over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  return %all : !msamp.bundle<@m, weight>
}
