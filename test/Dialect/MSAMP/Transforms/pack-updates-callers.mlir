// A function that is called keeps its signature, or its callers change with it; one
// with branches keeps it too.
// RUN: msamp-opt %s --msamp-pack-updates --split-input-file | FileCheck %s

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// CHECK-LABEL: func.func @callee
// CHECK: msamp.wrapped_update @plain weight(%{{.*}} : !msamp.bundle
func.func @callee(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @caller
// CHECK: call @callee
func.func @caller(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @callee(%w, %g) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// CHECK-LABEL: func.func @branch
// CHECK-SAME: (%{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>) -> tensor<4xf32>
// CHECK: msamp.wrapped_update @plain weight(%{{.*}} : !msamp.bundle
func.func @branch(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  cf.br ^bb1(%0 : tensor<4xf32>)
^bb1(%x: tensor<4xf32>):
  return %x : tensor<4xf32>
}
