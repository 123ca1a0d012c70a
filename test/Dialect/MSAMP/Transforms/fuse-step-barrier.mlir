// Ranks meet where gradients are reduced and where weights are gathered: barriers there are
// met without an op of their own.
// RUN: msamp-opt %s --msamp-shard-step="policy=fsdp2 ranks=2" --msamp-expand-wrapper --msamp-fuse-step | FileCheck %s

// CHECK: msamp.launch @step
// CHECK-NOT: msamp.barrier
msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  %0 = arith.subf %param, %grad : f32
  msamp.yield %0 : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.param_group @default
  msamp.tensor "a" : tensor<4xf32> class(@c) group(@default)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  msamp.barrier over @dp
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  msamp.barrier over @dp
  return %0 : !msamp.bundle<@m, weight>
}
