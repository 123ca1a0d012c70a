// States that do not fit what the library defines are refused, with the place in the
// library.
// RUN: not msamp-opt %s --msamp-resolve-optimizers 2>&1 | FileCheck %s

func.func @states_do_not_fit(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // CHECK: [[#@LINE+1]]:8: error: 'msamp.wrapped_update' op has 0 state operands, but optimizer @adamw has 2 states
  %0 = msamp.wrapped_update @adamw weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  // CHECK: adamw.mlir:{{[0-9]+}}:1: note: optimizer defined here
  return
}
