// A rank's step over parts of tensors becomes a step over whole tensors that says how it was
// sharded, and from there a rank's step over bundles.
// RUN: msamp-opt %s --msamp-lift-collectives | FileCheck %s
// RUN: msamp-opt %s --msamp-lift-collectives --msamp-pack-updates --msamp-infer-storage --msamp-shard-step | FileCheck %s --check-prefix=SHARD

msamp.process_group @dp ranks(4)
msamp.optimizer @momentum states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %velocity: f32, %lr: f32) {
  msamp.yield %param, %velocity : f32, f32
}

#e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>
!whole = !msamp.scaled<8x4, #e4m3>
!part = !msamp.scaled<2x4, #e4m3>

// SHARD: msamp.layout @fsdp2_layout sharding(fsdp2 over @dp)
// SHARD: wire = #msamp.storage<f8E4M3FN
// SHARD: msamp.tensor "a" : tensor<8x4xf32>
// SHARD: msamp.tensor "b" : tensor<4xf32>
// SHARD-LABEL: func.func @fsdp2
// SHARD-SAME: %[[G:[^ ]*]]: !msamp.bundle<@fsdp2_layout, wire>
// SHARD-NOT: attributes
// SHARD: %[[MEAN:.*]] = msamp.reduce_scatter %[[G]] over @dp : !msamp.bundle<@fsdp2_layout, wire> -> !msamp.bundle<@fsdp2_layout, grad>
// SHARD: %[[NEW:.*]]:2 = msamp.wrapped_update @momentum {{.*}} grad(%[[MEAN]]
// SHARD: msamp.all_gather %[[NEW]]#0 over @dp

// CHECK-LABEL: func.func @fsdp2
// CHECK-SAME: (%[[W:.*]]: !msamp.scaled<8x4, {{.*}}>, %[[S:.*]]: tensor<8x4xbf16>, %[[GW:.*]]: !msamp.scaled<8x4, {{.*}}>, %[[B:.*]]: tensor<4xf32>, %[[SB:.*]]: tensor<4xf32>, %[[GB:.*]]: tensor<4xf32>)
// CHECK-SAME: -> (!msamp.scaled<8x4, {{.*}}>, tensor<8x4xbf16>, tensor<4xf32>, tensor<4xf32>)
// CHECK-SAME: attributes {msamp.group = @dp, msamp.sharding = #msamp.sharding_policy<fsdp2>}
func.func @fsdp2(%w: !part, %s: tensor<2x4xbf16>, %gw: !whole, %b: tensor<1xf32>, %sb: tensor<1xf32>, %gb: tensor<4xf32>)
    -> (!whole, tensor<2x4xbf16>, tensor<4xf32>, tensor<1xf32>) {
  // CHECK-NEXT: %[[A:.*]]:2 = msamp.wrapped_update @momentum name "a" weight(%[[W]] : {{.*}}) grad(%[[GW]] : {{.*}}) states(%[[S]] : tensor<8x4xbf16>)
  %mean = msamp.reduce_scatter %gw over @dp : !whole -> tensor<2x4xf32>
  %0:2 = msamp.wrapped_update @momentum name "a" weight(%w : !part) grad(%mean : tensor<2x4xf32>) states(%s : tensor<2x4xbf16>)
  %all = msamp.all_gather %0#0 over @dp : !part -> !whole
  // CHECK-NEXT: %[[V:.*]]:2 = msamp.wrapped_update @momentum name "b" weight(%[[B]] : {{.*}}) grad(%[[GB]] : {{.*}}) states(%[[SB]] : tensor<4xf32>)
  %meanb = msamp.reduce_scatter %gb over @dp by mean : tensor<4xf32> -> tensor<1xf32>
  %1:2 = msamp.wrapped_update @momentum name "b" weight(%b : tensor<1xf32>) grad(%meanb : tensor<1xf32>) states(%sb : tensor<1xf32>)
  %allb = msamp.all_gather %1#0 over @dp : tensor<1xf32> -> tensor<4xf32>
  // CHECK-NEXT: return %[[A]]#0, %[[A]]#1, %[[V]]#0, %[[V]]#1
  return %all, %0#1, %allb, %1#1 : !whole, tensor<2x4xbf16>, tensor<4xf32>, tensor<1xf32>
}

// CHECK-LABEL: func.func @data_parallel
// CHECK-SAME: (%[[W:.*]]: tensor<4xf32>, %[[S:.*]]: tensor<4xf32>, %[[G:.*]]: tensor<4xbf16>)
// CHECK-SAME: attributes {msamp.group = @dp, msamp.sharding = #msamp.sharding_policy<none>}
// SHARD-LABEL: msamp.layout @data_parallel_layout sharding(none over @dp)
// SHARD: func.func @data_parallel
// SHARD: msamp.reduce_scatter
// SHARD-NOT: msamp.all_gather
func.func @data_parallel(%w: tensor<4xf32>, %s: tensor<4xf32>, %g: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK-NEXT: msamp.wrapped_update @momentum weight(%[[W]] : {{.*}}) grad(%[[G]] : tensor<4xbf16>)
  %mean = msamp.all_reduce %g over @dp : tensor<4xbf16> -> tensor<4xf32>
  %0:2 = msamp.wrapped_update @momentum weight(%w : tensor<4xf32>) grad(%mean : tensor<4xf32>) states(%s : tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @sums
// CHECK-SAME: attributes {msamp.group = @dp, msamp.reduction = #msamp.rank_reduction<sum>, msamp.sharding = #msamp.sharding_policy<none>}
// SHARD-LABEL: msamp.layout @sums_layout sharding(none over @dp by sum)
// SHARD: func.func @sums
// SHARD-NOT: attributes
// SHARD: msamp.reduce_scatter %{{.*}} over @dp by sum
func.func @sums(%w: tensor<4xf32>, %s: tensor<4xf32>, %g: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xf32>) {
  %sum = msamp.all_reduce %g over @dp by sum : tensor<4xbf16> -> tensor<4xf32>
  %0:2 = msamp.wrapped_update @momentum weight(%w : tensor<4xf32>) grad(%sum : tensor<4xf32>) states(%s : tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}
