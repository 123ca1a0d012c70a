// Every form of the quantization ops prints as text that parses to the same ops.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

!e4m3 = !msamp.scaled<4x8, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
!delayed = !msamp.scaled<4x8, #msamp.storage<f16, scaling = <per_tensor, delayed, history = 16>>>
!scalar = !msamp.scaled<#msamp.storage<f8E5M2, scaling = <per_tensor, current>>>
!empty = !msamp.scaled<0x8, #msamp.storage<f8E5M2, scaling = <per_tensor, current>>>

// CHECK-LABEL: func.func @tensors
func.func @tensors(%x: tensor<4x8xf32>, %s: tensor<f32>) -> (!e4m3, !delayed, tensor<4x8xf32>, tensor<f32>) {
  // CHECK: msamp.quantize saturate %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<f32> -> !msamp.scaled<4x8, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
  %0 = msamp.quantize saturate %x, %s : tensor<4x8xf32>, tensor<f32> -> !e4m3
  // CHECK: msamp.quantize ieee %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<f32> -> !msamp.scaled<4x8, #msamp.storage<f16, scaling = <per_tensor, delayed, history = 16>>>
  %1 = msamp.quantize ieee %x, %s : tensor<4x8xf32>, tensor<f32> -> !delayed
  // CHECK: msamp.dequantize %{{.*}} : !msamp.scaled<4x8, {{.*}}f8E4M3FN{{.*}} -> tensor<4x8xf32>
  %2 = msamp.dequantize %0 : !e4m3 -> tensor<4x8xf32>
  // CHECK: msamp.amax %{{.*}} : tensor<4x8xf32> -> tensor<f32>
  %3 = msamp.amax %2 : tensor<4x8xf32> -> tensor<f32>
  return %0, %1, %2, %3 : !e4m3, !delayed, tensor<4x8xf32>, tensor<f32>
}

// CHECK-LABEL: func.func @rank_0_and_empty
func.func @rank_0_and_empty(%x: tensor<f32>, %y: tensor<0x8xf32>, %s: tensor<f32>) -> (!scalar, !empty) {
  // CHECK: msamp.quantize {{.*}} -> !msamp.scaled<#msamp.storage<f8E5M2, scaling = <per_tensor, current>>>
  %0 = msamp.quantize saturate %x, %s : tensor<f32>, tensor<f32> -> !scalar
  // CHECK: msamp.quantize {{.*}} -> !msamp.scaled<0x8, #msamp.storage<f8E5M2, scaling = <per_tensor, current>>>
  %1 = msamp.quantize saturate %y, %s : tensor<0x8xf32>, tensor<f32> -> !empty
  return %0, %1 : !scalar, !empty
}

// CHECK-LABEL: func.func @bundles
func.func @bundles(%m: !msamp.bundle<@model, first_moment>) -> !msamp.bundle<@model, first_moment> {
  // CHECK: %[[X:.*]] = msamp.dequantize %{{.*}} : !msamp.bundle<@model, first_moment> -> !msamp.bundle<@model, wide>
  %x = msamp.dequantize %m : !msamp.bundle<@model, first_moment> -> !msamp.bundle<@model, wide>
  // CHECK: %[[A:.*]] = msamp.amax %[[X]] : !msamp.bundle<@model, wide> -> !msamp.bundle<@model, scalar>
  %a = msamp.amax %x : !msamp.bundle<@model, wide> -> !msamp.bundle<@model, scalar>
  // CHECK: %[[S:.*]] = msamp.compute_scale %[[A]], %{{.*}} : !msamp.bundle<@model, scalar>, !msamp.bundle<@model, first_moment> -> !msamp.bundle<@model, scalar>
  %s = msamp.compute_scale %a, %m : !msamp.bundle<@model, scalar>, !msamp.bundle<@model, first_moment> -> !msamp.bundle<@model, scalar>
  // CHECK: msamp.quantize saturate %[[X]], %[[S]] : !msamp.bundle<@model, wide>, !msamp.bundle<@model, scalar> -> !msamp.bundle<@model, first_moment>
  %q = msamp.quantize saturate %x, %s : !msamp.bundle<@model, wide>, !msamp.bundle<@model, scalar> -> !msamp.bundle<@model, first_moment>
  return %q : !msamp.bundle<@model, first_moment>
}

// CHECK-LABEL: func.func @scales
func.func @scales(%a: f32, %o: f32, %at: tensor<f32>, %ot: tensor<f32>, %h: tensor<16xf32>) -> (f32, tensor<f32>, f32, tensor<16xf32>) {
  // CHECK: msamp.compute_scale %{{.*}}, %{{.*}} for f8E4M3FN : f32, f32 -> f32
  %0 = msamp.compute_scale %a, %o for f8E4M3FN : f32, f32 -> f32
  // CHECK: msamp.compute_scale %{{.*}}, %{{.*}} for f8E5M2 : tensor<f32>, tensor<f32> -> tensor<f32>
  %1 = msamp.compute_scale %at, %ot for f8E5M2 : tensor<f32>, tensor<f32> -> tensor<f32>
  // CHECK: msamp.compute_scale %{{.*}}, %{{.*}} for f16 : f32, f32 -> f32
  %2 = msamp.compute_scale %a, %o for f16 : f32, f32 -> f32
  // CHECK: msamp.update_amax_history %{{.*}}, %{{.*}} : tensor<16xf32>, tensor<f32>
  %3 = msamp.update_amax_history %h, %at : tensor<16xf32>, tensor<f32>
  return %0, %1, %2, %3 : f32, tensor<f32>, f32, tensor<16xf32>
}
