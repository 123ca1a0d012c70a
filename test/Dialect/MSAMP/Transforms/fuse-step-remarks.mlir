// The remark says how much became one kernel, and the bytes that a parameter costs.
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step --remarks-filter='msamp-fuse-step' -o /dev/null 2>&1 | FileCheck %s
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step -o /dev/null 2>&1 | FileCheck %s --check-prefix=QUIET --allow-empty

// QUIET-NOT: remark

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %new = arith.subf %param, %grad : f32
  msamp.yield %new : f32
}
msamp.layout @m {
  msamp.storage_class @matrix {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
  msamp.storage_class @vector {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.tensor "w0" : tensor<4x8xf32> class(@matrix)
  msamp.tensor "b" : tensor<8xf32> class(@vector)
  msamp.tensor "w1" : tensor<4x8xf32> class(@matrix)
}
// CHECK-DAG: fuse-step-remarks.mlir:[[#@LINE+2]]:1: remark: [Passed] Fused | Category:msamp-fuse-step | Function=step | Remark="fused 6 bundle ops over 2 tensors of class @matrix into one kernel: 3 bytes loaded and 2 stored a parameter"
// CHECK-DAG: remark: [Passed] Fused | Category:msamp-fuse-step | Function=step | Remark="fused 6 bundle ops over 1 tensors of class @vector into one kernel: 8 bytes loaded and 4 stored a parameter"
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}
