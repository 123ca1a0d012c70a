// Named optimizers of the library come into the module, once each; the module's
// own definition of a name wins.
// RUN: msamp-opt %s --msamp-resolve-optimizers --split-input-file | FileCheck %s

// CHECK-COUNT-1: msamp.optimizer @sgd states(momentum_buffer : signed)
// CHECK-NOT: msamp.optimizer
// CHECK-LABEL: func.func @library
// CHECK-COUNT-2: msamp.wrapped_update @sgd
func.func @library(%w: tensor<4xf32>, %g: tensor<4xf32>, %s: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = msamp.wrapped_update @sgd weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) states(%s : tensor<4xf32>)
  %1:2 = msamp.wrapped_update @sgd weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) states(%s : tensor<4xf32>)
  return %0#0, %1#0 : tensor<4xf32>, tensor<4xf32>
}

// -----

// CHECK-NOT: momentum_buffer
// CHECK: msamp.optimizer @sgd states() hyper()
// CHECK-NOT: msamp.optimizer
msamp.optimizer @sgd states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @own_definition(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = msamp.wrapped_update @sgd weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return %0 : tensor<4xf32>
}
