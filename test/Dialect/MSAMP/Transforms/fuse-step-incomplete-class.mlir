// A class that msamp-infer-storage has not completed is refused, not dereferenced.
// RUN: not msamp-opt %s --msamp-fuse-step 2>&1 | FileCheck %s

// CHECK: error: {{.*}}@c{{.*}}run msamp-infer-storage first
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c level(O0)
  msamp.tensor "a" : tensor<4xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %p = msamp.dequantize %w : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, wide>
  %d = msamp.dequantize %g : !msamp.bundle<@m, grad> -> !msamp.bundle<@m, wide>
  %u = msamp.update @plain(%p, %d) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %a = msamp.amax %u : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, scalar>
  %s = msamp.compute_scale %a, %w : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  %q = msamp.quantize saturate %u, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return %q : !msamp.bundle<@m, weight>
}
