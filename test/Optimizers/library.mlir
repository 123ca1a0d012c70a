// Every optimizer of the library resolves, verifies and compiles, at every level.
// RUN: msamp-opt %src/lib/Optimizers/adam.mlir | FileCheck %s --check-prefix=ADAM
// RUN: msamp-opt %src/lib/Optimizers/adamw.mlir | FileCheck %s --check-prefix=ADAMW
// RUN: msamp-opt %src/lib/Optimizers/sgd.mlir | FileCheck %s --check-prefix=SGD
// RUN: msamp-compile --optimizer=adam --params=%digits/params.safetensors -o %t.adam.msplan
// RUN: msamp-compile --optimizer=adamw --params=%digits/params.safetensors --opt-level=O2 -o %t.adamw.msplan
// RUN: msamp-compile --optimizer=sgd --params=%digits/params.safetensors --opt-level=O1 -o %t.sgd.msplan
// RUN: msamp-compile --optimizer=sgd --params=%digits/params.safetensors --opt-level=O0 -o %t.sgd.msplan
// RUN: msamp-opt %s --msamp-resolve-optimizers | FileCheck %s

// ADAM: msamp.optimizer @adam states(first_moment : signed, second_moment : nonnegative) hyper(lr = 1.000000e-03 in [0.000000e+00, inf), beta1 = 9.000000e-01 in [0.000000e+00, 1.000000e+00), beta2 = 0.99899999999999999 in [0.000000e+00, 1.000000e+00), eps = 1.000000e-08 in [0.000000e+00, inf), weight_decay = 0.000000e+00 in [0.000000e+00, inf), maximize = 0.000000e+00 in [0.000000e+00, 2.000000e+00))
// ADAMW: msamp.optimizer @adamw states(first_moment : signed, second_moment : nonnegative) hyper({{.*}}, weight_decay = 1.000000e-02 in [0.000000e+00, inf)
// SGD: msamp.optimizer @sgd states(momentum_buffer : signed) hyper(lr = 1.000000e-03 in {{.*}}, momentum = 0.000000e+00 in {{.*}}, dampening = 0.000000e+00 in {{.*}}, weight_decay = 0.000000e+00 in {{.*}}, nesterov = 0.000000e+00 in

// CHECK-DAG: msamp.optimizer @adam states
// CHECK-DAG: msamp.optimizer @adamw states
// CHECK-DAG: msamp.optimizer @sgd states
func.func @all(%w: tensor<4xf32>, %g: tensor<4xf32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0:3 = msamp.wrapped_update @adam weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) states(%a, %b : tensor<4xf32>, tensor<4xf32>)
  %1:3 = msamp.wrapped_update @adamw weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) states(%a, %b : tensor<4xf32>, tensor<4xf32>)
  %2:2 = msamp.wrapped_update @sgd weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) states(%a : tensor<4xf32>)
  return %0#0, %1#0, %2#0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
