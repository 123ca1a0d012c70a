// FP8 casts of tensors make no invalid IR; casts that do not round to nearest even are
// not turned into ones that do.
// RUN: msamp-opt %s --msamp-expand-casts | FileCheck %s

// CHECK-LABEL: func.func @tensor
// CHECK: return %{{.*}} : tensor<4xf32>
func.func @tensor(%x: tensor<4xf8E4M3FN>) -> tensor<4xf32> {
  %0 = arith.extf %x : tensor<4xf8E4M3FN> to tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @downward
// CHECK-NEXT: arith.truncf %{{.*}} downward : f32 to f8E4M3FN
func.func @downward(%x: f32) -> f8E4M3FN {
  %0 = arith.truncf %x downward : f32 to f8E4M3FN
  return %0 : f8E4M3FN
}
