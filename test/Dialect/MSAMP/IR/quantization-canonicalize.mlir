// Folds of the scale ops give the worked numbers of their definitions.
// RUN: msamp-opt %s --canonicalize | FileCheck %s

// The largest power of two that keeps amax at or below 448.
// CHECK-LABEL: func.func @compute_scale_E4M3
func.func @compute_scale_E4M3() -> (i32, i32, i32, i32, i32, i32, i32) {
  // 2.0**5 is 1107296256 as bits.
  // CHECK-DAG: %[[S0:.*]] = arith.constant 1107296256 : i32
  // 2.0**-5 is 1023410176 as bits.
  // CHECK-DAG: %[[S1:.*]] = arith.constant 1023410176 : i32
  // 1.0 is 1065353216 as bits.
  // CHECK-DAG: %[[S2:.*]] = arith.constant 1065353216 : i32
  // 0.5 is 1056964608 as bits.
  // CHECK-DAG: %[[S3:.*]] = arith.constant 1056964608 : i32
  // 2.0**8 is 1132462080 as bits.
  // CHECK-DAG: %[[S4:.*]] = arith.constant 1132462080 : i32
  // 2.0**7 is 1124073472 as bits.
  // CHECK-DAG: %[[S5:.*]] = arith.constant 1124073472 : i32
  // 2.0**14 is 1182793728 as bits.
  // CHECK-DAG: %[[S6:.*]] = arith.constant 1182793728 : i32
  %old = arith.constant 5.0 : f32
  %a0 = arith.constant 10.0 : f32
  %s0 = msamp.compute_scale %a0, %old for f8E4M3FN : f32, f32 -> f32
  %b0 = arith.bitcast %s0 : f32 to i32
  %a1 = arith.constant 10000.0 : f32
  %s1 = msamp.compute_scale %a1, %old for f8E4M3FN : f32, f32 -> f32
  %b1 = arith.bitcast %s1 : f32 to i32
  %a2 = arith.constant 448.0 : f32
  %s2 = msamp.compute_scale %a2, %old for f8E4M3FN : f32, f32 -> f32
  %b2 = arith.bitcast %s2 : f32 to i32
  %a3 = arith.constant 449.0 : f32
  %s3 = msamp.compute_scale %a3, %old for f8E4M3FN : f32, f32 -> f32
  %b3 = arith.bitcast %s3 : f32 to i32
  %a4 = arith.constant 1.0 : f32
  %s4 = msamp.compute_scale %a4, %old for f8E4M3FN : f32, f32 -> f32
  %b4 = arith.bitcast %s4 : f32 to i32
  %a5 = arith.constant 3.0 : f32
  %s5 = msamp.compute_scale %a5, %old for f8E4M3FN : f32, f32 -> f32
  %b5 = arith.bitcast %s5 : f32 to i32
  %a6 = arith.constant 0.02 : f32
  %s6 = msamp.compute_scale %a6, %old for f8E4M3FN : f32, f32 -> f32
  %b6 = arith.bitcast %s6 : f32 to i32
  // CHECK: return %[[S0]], %[[S1]], %[[S2]], %[[S3]], %[[S4]], %[[S5]], %[[S6]] :
  return %b0, %b1, %b2, %b3, %b4, %b5, %b6 : i32, i32, i32, i32, i32, i32, i32
}

// The same for 57344 and 65504.
// CHECK-LABEL: func.func @compute_scale_E5M2_f16
func.func @compute_scale_E5M2_f16() -> (i32, i32, i32, i32, i32, i32, i32, i32) {
  // 2.0**15 is 1191182336 as bits.
  // CHECK-DAG: %[[S0:.*]] = arith.constant 1191182336 : i32
  // 2.0**26 is 1283457024 as bits.
  // CHECK-DAG: %[[S1:.*]] = arith.constant 1283457024 : i32
  // 1.0 is 1065353216 as bits.
  // CHECK-DAG: %[[S2:.*]] = arith.constant 1065353216 : i32
  // 0.5 is 1056964608 as bits.
  // CHECK-DAG: %[[S3:.*]] = arith.constant 1056964608 : i32
  // 2.0**22 is 1249902592 as bits.
  // CHECK-DAG: %[[S4:.*]] = arith.constant 1249902592 : i32
  %old = arith.constant 5.0 : f32
  %a0 = arith.constant 1.0 : f32
  %s0 = msamp.compute_scale %a0, %old for f8E5M2 : f32, f32 -> f32
  %b0 = arith.bitcast %s0 : f32 to i32
  %a1 = arith.constant 7.0e-4 : f32
  %s1 = msamp.compute_scale %a1, %old for f8E5M2 : f32, f32 -> f32
  %b1 = arith.bitcast %s1 : f32 to i32
  %a2 = arith.constant 57344.0 : f32
  %s2 = msamp.compute_scale %a2, %old for f8E5M2 : f32, f32 -> f32
  %b2 = arith.bitcast %s2 : f32 to i32
  %a3 = arith.constant 57345.0 : f32
  %s3 = msamp.compute_scale %a3, %old for f8E5M2 : f32, f32 -> f32
  %b3 = arith.bitcast %s3 : f32 to i32
  %a4 = arith.constant 1.0 : f32
  %s4 = msamp.compute_scale %a4, %old for f16 : f32, f32 -> f32
  %b4 = arith.bitcast %s4 : f32 to i32
  %a5 = arith.constant 0.01 : f32
  %s5 = msamp.compute_scale %a5, %old for f16 : f32, f32 -> f32
  %b5 = arith.bitcast %s5 : f32 to i32
  %a6 = arith.constant 65504.0 : f32
  %s6 = msamp.compute_scale %a6, %old for f16 : f32, f32 -> f32
  %b6 = arith.bitcast %s6 : f32 to i32
  %a7 = arith.constant 1.0e5 : f32
  %s7 = msamp.compute_scale %a7, %old for f16 : f32, f32 -> f32
  %b7 = arith.bitcast %s7 : f32 to i32
  // CHECK: return %[[S0]], %[[S1]], %[[S2]], %[[S3]], %[[S0]], %[[S4]], %[[S2]], %[[S3]] :
  return %b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7 : i32, i32, i32, i32, i32, i32, i32, i32
}

// Zero, infinity and NaN of either sign keep the old scale.
// CHECK-LABEL: func.func @compute_scale_keeps_the_old_scale
func.func @compute_scale_keeps_the_old_scale() -> (i32, i32, i32, i32, i32, i32) {
  // 32.0 is 1107296256 as bits.
  // CHECK-DAG: %[[S0:.*]] = arith.constant 1107296256 : i32
  %old = arith.constant 32.0 : f32
  %a0 = arith.constant 0.0 : f32
  %s0 = msamp.compute_scale %a0, %old for f8E4M3FN : f32, f32 -> f32
  %b0 = arith.bitcast %s0 : f32 to i32
  %a1 = arith.constant -0.0 : f32
  %s1 = msamp.compute_scale %a1, %old for f8E4M3FN : f32, f32 -> f32
  %b1 = arith.bitcast %s1 : f32 to i32
  %a2 = arith.constant 0x7F800000 : f32
  %s2 = msamp.compute_scale %a2, %old for f8E4M3FN : f32, f32 -> f32
  %b2 = arith.bitcast %s2 : f32 to i32
  %a3 = arith.constant 0xFF800000 : f32
  %s3 = msamp.compute_scale %a3, %old for f8E5M2 : f32, f32 -> f32
  %b3 = arith.bitcast %s3 : f32 to i32
  %a4 = arith.constant 0x7FC00000 : f32
  %s4 = msamp.compute_scale %a4, %old for f8E4M3FN : f32, f32 -> f32
  %b4 = arith.bitcast %s4 : f32 to i32
  %a5 = arith.constant 0xFF800001 : f32
  %s5 = msamp.compute_scale %a5, %old for f16 : f32, f32 -> f32
  %b5 = arith.bitcast %s5 : f32 to i32
  // CHECK: return %[[S0]], %[[S0]], %[[S0]], %[[S0]], %[[S0]], %[[S0]] :
  return %b0, %b1, %b2, %b3, %b4, %b5 : i32, i32, i32, i32, i32, i32
}

// The exponent stays within 126, so that scale and scale_inv are normal: the
// smallest subnormal, the smallest normal, the last amax below the limit; and the
// largest f32, which needs no limit.
// CHECK-LABEL: func.func @compute_scale_clamps
func.func @compute_scale_clamps() -> (i32, i32, i32, i32, i32) {
  // 2.0**126 is 2122317824 as bits.
  // CHECK-DAG: %[[S0:.*]] = arith.constant 2122317824 : i32
  // 2.0**125 is 2113929216 as bits.
  // CHECK-DAG: %[[S1:.*]] = arith.constant 2113929216 : i32
  // 2.0**-120 is 58720256 as bits.
  // CHECK-DAG: %[[S2:.*]] = arith.constant 58720256 : i32
  // 2.0**-113 is 117440512 as bits.
  // CHECK-DAG: %[[S3:.*]] = arith.constant 117440512 : i32
  %old = arith.constant 32.0 : f32
  %a0 = arith.constant 0x00000001 : f32
  %s0 = msamp.compute_scale %a0, %old for f8E4M3FN : f32, f32 -> f32
  %b0 = arith.bitcast %s0 : f32 to i32
  %a1 = arith.constant 0x00800000 : f32
  %s1 = msamp.compute_scale %a1, %old for f16 : f32, f32 -> f32
  %b1 = arith.bitcast %s1 : f32 to i32
  %a2 = arith.constant 0x05000000 : f32
  %s2 = msamp.compute_scale %a2, %old for f8E4M3FN : f32, f32 -> f32
  %b2 = arith.bitcast %s2 : f32 to i32
  %a3 = arith.constant 0x7F7FFFFF : f32
  %s3 = msamp.compute_scale %a3, %old for f8E4M3FN : f32, f32 -> f32
  %b3 = arith.bitcast %s3 : f32 to i32
  %a4 = arith.constant 0x7F7FFFFF : f32
  %s4 = msamp.compute_scale %a4, %old for f8E5M2 : f32, f32 -> f32
  %b4 = arith.bitcast %s4 : f32 to i32
  // CHECK: return %[[S0]], %[[S0]], %[[S1]], %[[S2]], %[[S3]] :
  return %b0, %b1, %b2, %b3, %b4 : i32, i32, i32, i32, i32
}

// Rank-0 tensors fold as scalars do; unknown operands do not fold.
// CHECK-LABEL: func.func @compute_scale_of_tensors
func.func @compute_scale_of_tensors(%unknown: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %amax = arith.constant dense<10.0> : tensor<f32>
  %old = arith.constant dense<1.0> : tensor<f32>
  // CHECK-DAG: %[[S:.*]] = arith.constant dense<3.200000e+01> : tensor<f32>
  // CHECK-DAG: %[[T:.*]] = msamp.compute_scale
  %s = msamp.compute_scale %amax, %old for f8E4M3FN : tensor<f32>, tensor<f32> -> tensor<f32>
  %t = msamp.compute_scale %amax, %unknown for f8E4M3FN : tensor<f32>, tensor<f32> -> tensor<f32>
  // CHECK: return %[[S]], %[[T]]
  return %s, %t : tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func.func @update_amax_history
func.func @update_amax_history() -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<1xf32>) {
  %history = arith.constant dense<[3.0, 2.0, 1.0, -1.0]> : tensor<4xf32>
  %fresh = arith.constant dense<-1.0> : tensor<4xf32>
  %single = arith.constant dense<7.0> : tensor<1xf32>
  %amax = arith.constant dense<5.0> : tensor<f32>
  %inf = arith.constant dense<0x7F800000> : tensor<f32>
  %nan = arith.constant dense<0x7FC00000> : tensor<f32>
  // CHECK-DAG: %[[H0:.*]] = arith.constant dense<[5.000000e+00, 3.000000e+00, 2.000000e+00, 1.000000e+00]> : tensor<4xf32>
  // CHECK-DAG: %[[H1:.*]] = arith.constant dense<[5.000000e+00, -1.000000e+00, -1.000000e+00, -1.000000e+00]> : tensor<4xf32>
  // CHECK-DAG: %[[EMPTY:.*]] = arith.constant dense<-1.000000e+00> : tensor<4xf32>
  // CHECK-DAG: %[[H4:.*]] = arith.constant dense<5.000000e+00> : tensor<1xf32>
  %0 = msamp.update_amax_history %history, %amax : tensor<4xf32>, tensor<f32>
  %1 = msamp.update_amax_history %fresh, %amax : tensor<4xf32>, tensor<f32>
  // Not finite: the history starts over.
  %2 = msamp.update_amax_history %history, %inf : tensor<4xf32>, tensor<f32>
  %3 = msamp.update_amax_history %history, %nan : tensor<4xf32>, tensor<f32>
  %4 = msamp.update_amax_history %single, %amax : tensor<1xf32>, tensor<f32>
  // CHECK: return %[[H0]], %[[H1]], %[[EMPTY]], %[[EMPTY]], %[[H4]]
  return %0, %1, %2, %3, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<1xf32>
}

!e4m3 = !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
!e5m2 = !msamp.scaled<4, #msamp.storage<f8E5M2, scaling = <per_tensor, current>>>

// CHECK-LABEL: func.func @quantize_of_dequantize
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>, %[[S:.*]]: tensor<f32>)
func.func @quantize_of_dequantize(%x: tensor<4xf32>, %s: tensor<f32>) -> (!e4m3, !e4m3) {
  // CHECK-NEXT: %[[Q:.*]] = msamp.quantize saturate %[[X]], %[[S]]
  // CHECK-NEXT: return %[[Q]], %[[Q]]
  %q = msamp.quantize saturate %x, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  %d = msamp.dequantize %q : !e4m3 -> tensor<4xf32>
  %q1 = msamp.quantize saturate %d, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  return %q, %q1 : !e4m3, !e4m3
}

// Another scale, another format, or a payload of unknown scale requantizes.
// CHECK-LABEL: func.func @quantize_that_changes_something
func.func @quantize_that_changes_something(%x: tensor<4xf32>, %s: tensor<f32>, %t: tensor<f32>, %u: !e4m3) -> (!e4m3, !e5m2, !e4m3) {
  // CHECK-COUNT-4: msamp.quantize
  %q = msamp.quantize saturate %x, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  %d = msamp.dequantize %q : !e4m3 -> tensor<4xf32>
  %q1 = msamp.quantize saturate %d, %t : tensor<4xf32>, tensor<f32> -> !e4m3
  %q2 = msamp.quantize saturate %d, %s : tensor<4xf32>, tensor<f32> -> !e5m2
  %e = msamp.dequantize %u : !e4m3 -> tensor<4xf32>
  %q3 = msamp.quantize saturate %e, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  return %q1, %q2, %q3 : !e4m3, !e5m2, !e4m3
}

// IEEE overflow of E4M3 gives a NaN with a sign (0xFF), but encoding a NaN gives
// 0x7F: here quantizing again changes bits.
// CHECK-LABEL: func.func @quantize_ieee_of_its_own_nan
func.func @quantize_ieee_of_its_own_nan(%x: tensor<4xf32>, %s: tensor<f32>) -> !e4m3 {
  // CHECK-COUNT-2: msamp.quantize ieee
  %q = msamp.quantize ieee %x, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  %d = msamp.dequantize %q : !e4m3 -> tensor<4xf32>
  %q1 = msamp.quantize ieee %d, %s : tensor<4xf32>, tensor<f32> -> !e4m3
  return %q1 : !e4m3
}
