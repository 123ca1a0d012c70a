// A step of one process becomes that of a rank: gradients travel in their class's format, or
// the one asked for if they are narrow; the update sees means in f32; new weights are gathered
// unless every rank has them all.
// RUN: msamp-opt %s --msamp-shard-step="policy=fsdp2 ranks=4" | FileCheck %s
// RUN: msamp-opt %s --msamp-shard-step="policy=none ranks=2 grad-wire=bf16" | FileCheck %s --check-prefix=NONE
// RUN: msamp-opt %s --msamp-shard-step="policy=tensor ranks=3 grad-wire=e5m2 collectives=separate" | FileCheck %s --check-prefix=TENSOR
// RUN: msamp-opt %s --msamp-shard-step="policy=flat ranks=4 reduction=sum" | FileCheck %s --check-prefix=SUM
// RUN: msamp-opt %s --msamp-shard-step="policy=flat ranks=4" --msamp-expand-wrapper | FileCheck %s --check-prefix=WRAPPER
// RUN: msamp-opt %s --msamp-shard-step="policy=none ranks=4" --msamp-expand-wrapper | FileCheck %s --check-prefix=WHOLE
// RUN: msamp-opt %s --msamp-shard-step="policy=flat ranks=4" --msamp-expand-wrapper --msamp-fuse-step | FileCheck %s --check-prefix=FUSED
// RUN: msamp-opt %s --msamp-shard-step="policy=fsdp2 ranks=4" --remarks-filter="msamp-shard-step" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// CHECK: msamp.process_group @dp ranks(4)
// NONE: msamp.process_group @dp ranks(2)
// TENSOR: msamp.process_group @dp ranks(3) collectives(separate)
// CHECK: msamp.layout @m sharding(fsdp2 over @dp) {
// NONE: msamp.layout @m sharding(none over @dp) {
// TENSOR: msamp.layout @m sharding(tensor over @dp) {
msamp.layout @m {
  // CHECK-NEXT: msamp.storage_class @matrix {grad = #msamp.storage<f32>, weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, wire = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
  // NONE-NEXT: msamp.storage_class @matrix {grad = #msamp.storage<f32>, {{.*}}, wire = #msamp.storage<bf16>}
  // TENSOR-NEXT: msamp.storage_class @matrix {grad = #msamp.storage<f32>, {{.*}}, wire = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>}
  msamp.storage_class @matrix {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
  // CHECK-NEXT: msamp.storage_class @vector {grad = #msamp.storage<f32>, weight = #msamp.storage<f32>, wire = #msamp.storage<f32>}
  // NONE-NEXT: msamp.storage_class @vector {grad = #msamp.storage<f32>, weight = #msamp.storage<f32>, wire = #msamp.storage<f32>}
  msamp.storage_class @vector {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.param_group @default
  msamp.tensor "a" : tensor<4x4xf32> class(@matrix) group(@default)
  msamp.tensor "b" : tensor<4xf32> class(@vector) group(@default)
}
// SUM: msamp.layout @m sharding(flat over @dp by sum) {
// SUM: msamp.reduce_scatter %{{.*}} over @dp by sum : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
// Ranks that have parts of tensors choose one scale for the whole.
// WRAPPER: %[[AMAX:.*]] = msamp.amax
// WRAPPER-NEXT: %[[ALL:.*]] = msamp.all_reduce %[[AMAX]] over @dp by max : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
// WRAPPER-NEXT: msamp.compute_scale %[[ALL]]
// WHOLE-NOT: msamp.all_reduce
// WHOLE: msamp.compute_scale
// REMARK: class @matrix, fsdp2 over 4 ranks: a rank sends 0.75 bytes a parameter of gradients in f8E4M3FN and 0.75 of weights
// REMARK: class @vector, fsdp2 over 4 ranks: a rank sends 3.00 bytes a parameter of gradients in f32 and 3.00 of weights
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %0 = arith.subf %param, %grad : f32
  msamp.yield %0 : f32
}
// CHECK-LABEL: func.func @step
// CHECK-SAME: (%[[W:.*]]: !msamp.bundle<@m, weight>, %[[G:.*]]: !msamp.bundle<@m, wire>)
// CHECK-NEXT: %[[MEAN:.*]] = msamp.reduce_scatter %[[G]] over @dp : !msamp.bundle<@m, wire> -> !msamp.bundle<@m, grad>
// CHECK-NEXT: %[[NEW:.*]] = msamp.wrapped_update @plain weight(%[[W]] : !msamp.bundle<@m, weight>) grad(%[[MEAN]] : !msamp.bundle<@m, grad>)
// CHECK-NEXT: %[[ALL:.*]] = msamp.all_gather %[[NEW]] over @dp : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
// CHECK-NEXT: return %[[ALL]]
// NONE-LABEL: func.func @step
// NONE: msamp.reduce_scatter
// NONE-NOT: msamp.all_gather
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// The launch loads means; collectives follow from its layout.
// FUSED: msamp.launch @step layout(@m) optimizer(@plain)
// FUSED-NOT: msamp.load "wire"
// FUSED: msamp.load "grad" : f32
// FUSED-NOT: msamp.load "wire"
