// A scale that comes from outside cannot be dropped: it is refused.
// RUN: not msamp-opt %s --msamp-fuse-step 2>&1 | FileCheck %s

// CHECK: error: {{.*}}'!msamp.bundle<@m, scalar>'
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
func.func @step(%s: !msamp.bundle<@m, scalar>, %w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}
