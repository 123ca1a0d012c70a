// What has no part in a step is refused by name.
// RUN: msamp-opt %s --convert-shard-to-msamp --split-input-file --verify-diagnostics

// expected-error @below {{'shard.grid' op @grid is not of one axis and a known size, as the ranks of a step are}}
shard.grid @grid(shape = 2x2)

// -----

// expected-error @below {{'shard.grid' op @grid is not of one axis and a known size, as the ranks of a step are}}
shard.grid @grid(shape = ?)

// -----

shard.grid @dp(shape = 2)
func.func @f(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'shard.all_reduce' op reduces by max; gradients of a step are reduced by sum or average}}
  %0 = shard.all_reduce %g on @dp grid_axes = [0] reduction = max : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @dp(shape = 2)
func.func @f(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'shard.all_reduce' op is not over grid_axes = [0], which all ranks of a step share}}
  %0 = shard.all_reduce %g on @dp reduction = average : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @dp(shape = 2)
func.func @f(%g: tensor<4xf32>) -> tensor<4xf64> {
  // expected-error @below {{'shard.all_reduce' op takes 'tensor<4xf32>' to 'tensor<4xf64>', expected a tensor of f32, f16 or bf16 to one of f32}}
  %0 = shard.all_reduce %g on @dp grid_axes = [0] reduction = average : tensor<4xf32> -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// -----

shard.grid @dp(shape = 2)
func.func @f(%w: tensor<4x4xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{'shard.all_gather' op is along dimension 1; a step is sharded along dimension 0}}
  %0 = shard.all_gather %w on @dp grid_axes = [0] gather_axis = 1 : tensor<4x4xf32> -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @dp(shape = 2)
func.func @f(%w: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'shard.broadcast' op has no part in a step; all_reduce, reduce_scatter and all_gather have}}
  %0 = shard.broadcast %w on @dp grid_axes = [0] root = [0] : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

shard.grid @dp(shape = 2)
func.func @f(%w: tensor<2xi32>) -> tensor<4xi32> {
  // expected-error @below {{'shard.all_gather' op gathers 'tensor<2xi32>'; weights are tensors of f32, f16 or bf16}}
  %0 = shard.all_gather %w on @dp grid_axes = [0] gather_axis = 0 : tensor<2xi32> -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
