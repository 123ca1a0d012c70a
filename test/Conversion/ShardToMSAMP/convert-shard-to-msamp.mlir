// Upstream's grids and collectives become msamp's.
// RUN: msamp-opt %s --convert-shard-to-msamp | FileCheck %s

// CHECK: msamp.process_group @dp ranks(4)
// CHECK-NOT: shard.
shard.grid @dp(shape = 4)

// CHECK-LABEL: func.func @f
// CHECK-SAME: (%[[G:.*]]: tensor<8x4xbf16>, %[[W:.*]]: tensor<2x4xf16>)
func.func @f(%g: tensor<8x4xbf16>, %w: tensor<2x4xf16>) -> (tensor<8x4xf32>, tensor<2x4xf32>, tensor<8x4xf16>, tensor<8x4xf32>, tensor<2x4xf32>) {
  // CHECK-NEXT: %[[ALL:.*]] = msamp.all_reduce %[[G]] over @dp : tensor<8x4xbf16> -> tensor<8x4xf32>
  %0 = shard.all_reduce %g on @dp grid_axes = [0] reduction = average : tensor<8x4xbf16> -> tensor<8x4xf32>
  // CHECK-NEXT: %[[PART:.*]] = msamp.reduce_scatter %[[G]] over @dp : tensor<8x4xbf16> -> tensor<2x4xf32>
  %1 = shard.reduce_scatter %g on @dp grid_axes = [0] reduction = average scatter_axis = 0 : tensor<8x4xbf16> -> tensor<2x4xf32>
  // CHECK-NEXT: %[[WHOLE:.*]] = msamp.all_gather %[[W]] over @dp : tensor<2x4xf16> -> tensor<8x4xf16>
  %2 = shard.all_gather %w on @dp grid_axes = [0] gather_axis = 0 : tensor<2x4xf16> -> tensor<8x4xf16>
  // Upstream sums unless it is told otherwise.
  // CHECK-NEXT: %[[SUM:.*]] = msamp.all_reduce %[[G]] over @dp by sum : tensor<8x4xbf16> -> tensor<8x4xf32>
  %3 = shard.all_reduce %g on @dp grid_axes = [0] : tensor<8x4xbf16> -> tensor<8x4xf32>
  // CHECK-NEXT: %[[PARTSUM:.*]] = msamp.reduce_scatter %[[G]] over @dp by sum : tensor<8x4xbf16> -> tensor<2x4xf32>
  %4 = shard.reduce_scatter %g on @dp grid_axes = [0] reduction = sum scatter_axis = 0 : tensor<8x4xbf16> -> tensor<2x4xf32>
  // CHECK-NEXT: return %[[ALL]], %[[PART]], %[[WHOLE]], %[[SUM]], %[[PARTSUM]]
  return %0, %1, %2, %3, %4 : tensor<8x4xf32>, tensor<2x4xf32>, tensor<8x4xf16>, tensor<8x4xf32>, tensor<2x4xf32>
}
