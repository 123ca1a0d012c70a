// Functions that are no step are refused, with the op that stands in the way.
// RUN: msamp-opt %s --msamp-fuse-step --split-input-file --verify-diagnostics

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @two_updates(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  // expected-note @below {{first update here}}
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  // expected-error @below {{is a second update in one function; a launch holds one}}
  %u2 = msamp.update @plain(%u, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u2 : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u2, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
// expected-error @below {{function @no_update has bundle ops but no update to fuse}}
func.func @no_update(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @another_op(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  // expected-error @below {{'arith.constant' cannot be fused into a launch}}
  %x = arith.constant 1.0 : f32
  return %q : !msamp.bundle<@m, weight>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @tensor_form(%t: tensor<4xf32>, %w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  // expected-error @below {{'msamp.amax' cannot be fused into a launch}}
  %x = msamp.amax %t : tensor<4xf32> -> tensor<f32>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @stored_but_not_returned(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  // expected-error @below {{is not returned; its bundle would keep stale values}}
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @returned_but_not_stored(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, wide>) {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  // expected-error @below {{returns a value of type '!msamp.bundle<@m, wide>' that the step does not store}}
  return %q, %u : !msamp.bundle<@m, weight>, !msamp.bundle<@m, wide>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @no_layout(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  // expected-error @below {{layout @m is not defined}}
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  // expected-error @below {{"a" has no storage class; run msamp-infer-storage first}}
  msamp.tensor "a" : tensor<4xf32>
}
func.func @no_class(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}
