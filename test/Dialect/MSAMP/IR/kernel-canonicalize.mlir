// Folds of encode and decode: one rounding to nearest even, subnormals, what lies
// just above the range under both policies, and NaN.
// RUN: msamp-opt %s --canonicalize | FileCheck %s

// One rounding, from the source value: 1.0625001 is no tie, and 2^-10 is one.
// CHECK-LABEL: func.func @encode_E4M3_rounds_once
func.func @encode_E4M3_rounds_once() -> (i8, i8, i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 57 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant 56 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant 58 : i8
  // CHECK-DAG: %[[C3:.*]] = arith.constant 0 : i8
  // CHECK-DAG: %[[C4:.*]] = arith.constant 1 : i8
  // CHECK-DAG: %[[C5:.*]] = arith.constant 2 : i8
  // CHECK-DAG: %[[C6:.*]] = arith.constant -128 : i8
  %x0 = arith.constant 1.0625001 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f8E4M3FN
  %r0 = arith.bitcast %e0 : f8E4M3FN to i8
  %x1 = arith.constant 1.0625 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f8E4M3FN
  %r1 = arith.bitcast %e1 : f8E4M3FN to i8
  %x2 = arith.constant 1.1875 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f8E4M3FN
  %r2 = arith.bitcast %e2 : f8E4M3FN to i8
  %x3 = arith.constant 0x3A800000 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f8E4M3FN
  %r3 = arith.bitcast %e3 : f8E4M3FN to i8
  %x4 = arith.constant 0x3A800347 : f32
  %e4 = msamp.encode saturate %x4 : f32 -> f8E4M3FN
  %r4 = arith.bitcast %e4 : f8E4M3FN to i8
  %x5 = arith.constant 0x3B400000 : f32
  %e5 = msamp.encode saturate %x5 : f32 -> f8E4M3FN
  %r5 = arith.bitcast %e5 : f8E4M3FN to i8
  %x6 = arith.constant 0x3BA00000 : f32
  %e6 = msamp.encode saturate %x6 : f32 -> f8E4M3FN
  %r6 = arith.bitcast %e6 : f8E4M3FN to i8
  %x7 = arith.constant -0.0 : f32
  %e7 = msamp.encode saturate %x7 : f32 -> f8E4M3FN
  %r7 = arith.bitcast %e7 : f8E4M3FN to i8
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]], %[[C4]], %[[C5]], %[[C5]], %[[C6]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7 : i8, i8, i8, i8, i8, i8, i8, i8
}

// 1.125 and 1.375 are ties.
// CHECK-LABEL: func.func @encode_E5M2_ties_to_even
func.func @encode_E5M2_ties_to_even() -> (i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 60 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant 62 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant -66 : i8
  // CHECK-DAG: %[[C3:.*]] = arith.constant 0 : i8
  // CHECK-DAG: %[[C4:.*]] = arith.constant 1 : i8
  // CHECK-DAG: %[[C5:.*]] = arith.constant -128 : i8
  %x0 = arith.constant 1.125 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f8E5M2
  %r0 = arith.bitcast %e0 : f8E5M2 to i8
  %x1 = arith.constant 1.375 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f8E5M2
  %r1 = arith.bitcast %e1 : f8E5M2 to i8
  %x2 = arith.constant -1.375 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f8E5M2
  %r2 = arith.bitcast %e2 : f8E5M2 to i8
  %x3 = arith.constant 0x37000000 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f8E5M2
  %r3 = arith.bitcast %e3 : f8E5M2 to i8
  %x4 = arith.constant 0x37000347 : f32
  %e4 = msamp.encode saturate %x4 : f32 -> f8E5M2
  %r4 = arith.bitcast %e4 : f8E5M2 to i8
  %x5 = arith.constant -0.0 : f32
  %e5 = msamp.encode saturate %x5 : f32 -> f8E5M2
  %r5 = arith.bitcast %e5 : f8E5M2 to i8
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]], %[[C4]], %[[C5]] :
  return %r0, %r1, %r2, %r3, %r4, %r5 : i8, i8, i8, i8, i8, i8
}

// Above 448 and at infinity; NaN has no sign.
// CHECK-LABEL: func.func @encode_E4M3_saturates
func.func @encode_E4M3_saturates() -> (i8, i8, i8, i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 126 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant -2 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant 127 : i8
  %x0 = arith.constant 448.0 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f8E4M3FN
  %r0 = arith.bitcast %e0 : f8E4M3FN to i8
  %x1 = arith.constant 464.0 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f8E4M3FN
  %r1 = arith.bitcast %e1 : f8E4M3FN to i8
  %x2 = arith.constant 465.0 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f8E4M3FN
  %r2 = arith.bitcast %e2 : f8E4M3FN to i8
  %x3 = arith.constant 1000.0 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f8E4M3FN
  %r3 = arith.bitcast %e3 : f8E4M3FN to i8
  %x4 = arith.constant -1000.0 : f32
  %e4 = msamp.encode saturate %x4 : f32 -> f8E4M3FN
  %r4 = arith.bitcast %e4 : f8E4M3FN to i8
  %x5 = arith.constant 0x7F800000 : f32
  %e5 = msamp.encode saturate %x5 : f32 -> f8E4M3FN
  %r5 = arith.bitcast %e5 : f8E4M3FN to i8
  %x6 = arith.constant 0xFF800000 : f32
  %e6 = msamp.encode saturate %x6 : f32 -> f8E4M3FN
  %r6 = arith.bitcast %e6 : f8E4M3FN to i8
  %x7 = arith.constant 0x7FC00000 : f32
  %e7 = msamp.encode saturate %x7 : f32 -> f8E4M3FN
  %r7 = arith.bitcast %e7 : f8E4M3FN to i8
  %x8 = arith.constant 0xFFC00001 : f32
  %e8 = msamp.encode saturate %x8 : f32 -> f8E4M3FN
  %r8 = arith.bitcast %e8 : f8E4M3FN to i8
  // CHECK: return %[[C0]], %[[C0]], %[[C0]], %[[C0]], %[[C1]], %[[C0]], %[[C1]], %[[C2]], %[[C2]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : i8, i8, i8, i8, i8, i8, i8, i8, i8
}

// 464 is a tie that rounds down; above it E4M3 has only NaN, with the sign of the value.
// CHECK-LABEL: func.func @encode_E4M3_ieee
func.func @encode_E4M3_ieee() -> (i8, i8, i8, i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 126 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant 127 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant -1 : i8
  %x0 = arith.constant 448.0 : f32
  %e0 = msamp.encode ieee %x0 : f32 -> f8E4M3FN
  %r0 = arith.bitcast %e0 : f8E4M3FN to i8
  %x1 = arith.constant 464.0 : f32
  %e1 = msamp.encode ieee %x1 : f32 -> f8E4M3FN
  %r1 = arith.bitcast %e1 : f8E4M3FN to i8
  %x2 = arith.constant 465.0 : f32
  %e2 = msamp.encode ieee %x2 : f32 -> f8E4M3FN
  %r2 = arith.bitcast %e2 : f8E4M3FN to i8
  %x3 = arith.constant 1000.0 : f32
  %e3 = msamp.encode ieee %x3 : f32 -> f8E4M3FN
  %r3 = arith.bitcast %e3 : f8E4M3FN to i8
  %x4 = arith.constant -1000.0 : f32
  %e4 = msamp.encode ieee %x4 : f32 -> f8E4M3FN
  %r4 = arith.bitcast %e4 : f8E4M3FN to i8
  %x5 = arith.constant 0x7F800000 : f32
  %e5 = msamp.encode ieee %x5 : f32 -> f8E4M3FN
  %r5 = arith.bitcast %e5 : f8E4M3FN to i8
  %x6 = arith.constant 0xFF800000 : f32
  %e6 = msamp.encode ieee %x6 : f32 -> f8E4M3FN
  %r6 = arith.bitcast %e6 : f8E4M3FN to i8
  %x7 = arith.constant 0x7FC00000 : f32
  %e7 = msamp.encode ieee %x7 : f32 -> f8E4M3FN
  %r7 = arith.bitcast %e7 : f8E4M3FN to i8
  %x8 = arith.constant 0xFFC00001 : f32
  %e8 = msamp.encode ieee %x8 : f32 -> f8E4M3FN
  %r8 = arith.bitcast %e8 : f8E4M3FN to i8
  // CHECK: return %[[C0]], %[[C0]], %[[C1]], %[[C1]], %[[C2]], %[[C1]], %[[C2]], %[[C1]], %[[C1]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : i8, i8, i8, i8, i8, i8, i8, i8, i8
}

// Above 57344.
// CHECK-LABEL: func.func @encode_E5M2_saturates
func.func @encode_E5M2_saturates() -> (i8, i8, i8, i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 123 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant -5 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant 127 : i8
  %x0 = arith.constant 57344.0 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f8E5M2
  %r0 = arith.bitcast %e0 : f8E5M2 to i8
  %x1 = arith.constant 61439.0 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f8E5M2
  %r1 = arith.bitcast %e1 : f8E5M2 to i8
  %x2 = arith.constant 61440.0 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f8E5M2
  %r2 = arith.bitcast %e2 : f8E5M2 to i8
  %x3 = arith.constant 65504.0 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f8E5M2
  %r3 = arith.bitcast %e3 : f8E5M2 to i8
  %x4 = arith.constant -65504.0 : f32
  %e4 = msamp.encode saturate %x4 : f32 -> f8E5M2
  %r4 = arith.bitcast %e4 : f8E5M2 to i8
  %x5 = arith.constant 0x7F800000 : f32
  %e5 = msamp.encode saturate %x5 : f32 -> f8E5M2
  %r5 = arith.bitcast %e5 : f8E5M2 to i8
  %x6 = arith.constant 0xFF800000 : f32
  %e6 = msamp.encode saturate %x6 : f32 -> f8E5M2
  %r6 = arith.bitcast %e6 : f8E5M2 to i8
  %x7 = arith.constant 0x7FC00000 : f32
  %e7 = msamp.encode saturate %x7 : f32 -> f8E5M2
  %r7 = arith.bitcast %e7 : f8E5M2 to i8
  %x8 = arith.constant 0xFFC00001 : f32
  %e8 = msamp.encode saturate %x8 : f32 -> f8E5M2
  %r8 = arith.bitcast %e8 : f8E5M2 to i8
  // CHECK: return %[[C0]], %[[C0]], %[[C0]], %[[C0]], %[[C1]], %[[C0]], %[[C1]], %[[C2]], %[[C2]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : i8, i8, i8, i8, i8, i8, i8, i8, i8
}

// From 61440 on, infinity.
// CHECK-LABEL: func.func @encode_E5M2_ieee
func.func @encode_E5M2_ieee() -> (i8, i8, i8, i8, i8, i8, i8, i8, i8) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 123 : i8
  // CHECK-DAG: %[[C1:.*]] = arith.constant 124 : i8
  // CHECK-DAG: %[[C2:.*]] = arith.constant -4 : i8
  // CHECK-DAG: %[[C3:.*]] = arith.constant 127 : i8
  %x0 = arith.constant 57344.0 : f32
  %e0 = msamp.encode ieee %x0 : f32 -> f8E5M2
  %r0 = arith.bitcast %e0 : f8E5M2 to i8
  %x1 = arith.constant 61439.0 : f32
  %e1 = msamp.encode ieee %x1 : f32 -> f8E5M2
  %r1 = arith.bitcast %e1 : f8E5M2 to i8
  %x2 = arith.constant 61440.0 : f32
  %e2 = msamp.encode ieee %x2 : f32 -> f8E5M2
  %r2 = arith.bitcast %e2 : f8E5M2 to i8
  %x3 = arith.constant 65504.0 : f32
  %e3 = msamp.encode ieee %x3 : f32 -> f8E5M2
  %r3 = arith.bitcast %e3 : f8E5M2 to i8
  %x4 = arith.constant -65504.0 : f32
  %e4 = msamp.encode ieee %x4 : f32 -> f8E5M2
  %r4 = arith.bitcast %e4 : f8E5M2 to i8
  %x5 = arith.constant 0x7F800000 : f32
  %e5 = msamp.encode ieee %x5 : f32 -> f8E5M2
  %r5 = arith.bitcast %e5 : f8E5M2 to i8
  %x6 = arith.constant 0xFF800000 : f32
  %e6 = msamp.encode ieee %x6 : f32 -> f8E5M2
  %r6 = arith.bitcast %e6 : f8E5M2 to i8
  %x7 = arith.constant 0x7FC00000 : f32
  %e7 = msamp.encode ieee %x7 : f32 -> f8E5M2
  %r7 = arith.bitcast %e7 : f8E5M2 to i8
  %x8 = arith.constant 0xFFC00001 : f32
  %e8 = msamp.encode ieee %x8 : f32 -> f8E5M2
  %r8 = arith.bitcast %e8 : f8E5M2 to i8
  // CHECK: return %[[C0]], %[[C0]], %[[C1]], %[[C1]], %[[C2]], %[[C1]], %[[C2]], %[[C3]], %[[C3]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8 : i8, i8, i8, i8, i8, i8, i8, i8, i8
}

// Above 65504; the smallest subnormal.
// CHECK-LABEL: func.func @encode_f16_saturates
func.func @encode_f16_saturates() -> (i16, i16, i16, i16, i16, i16, i16, i16) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 31743 : i16
  // CHECK-DAG: %[[C1:.*]] = arith.constant -1025 : i16
  // CHECK-DAG: %[[C2:.*]] = arith.constant 32767 : i16
  // CHECK-DAG: %[[C3:.*]] = arith.constant 1 : i16
  // CHECK-DAG: %[[C4:.*]] = arith.constant 0 : i16
  %x0 = arith.constant 65504.0 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f16
  %r0 = arith.bitcast %e0 : f16 to i16
  %x1 = arith.constant 65520.0 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f16
  %r1 = arith.bitcast %e1 : f16 to i16
  %x2 = arith.constant -1.0e10 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f16
  %r2 = arith.bitcast %e2 : f16 to i16
  %x3 = arith.constant 0x7F800000 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f16
  %r3 = arith.bitcast %e3 : f16 to i16
  %x4 = arith.constant 0xFFC00001 : f32
  %e4 = msamp.encode saturate %x4 : f32 -> f16
  %r4 = arith.bitcast %e4 : f16 to i16
  %x5 = arith.constant 0x33800000 : f32
  %e5 = msamp.encode saturate %x5 : f32 -> f16
  %r5 = arith.bitcast %e5 : f16 to i16
  %x6 = arith.constant 0x33000000 : f32
  %e6 = msamp.encode saturate %x6 : f32 -> f16
  %r6 = arith.bitcast %e6 : f16 to i16
  %x7 = arith.constant 0x33000347 : f32
  %e7 = msamp.encode saturate %x7 : f32 -> f16
  %r7 = arith.bitcast %e7 : f16 to i16
  // CHECK: return %[[C0]], %[[C0]], %[[C1]], %[[C0]], %[[C2]], %[[C3]], %[[C4]], %[[C3]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7 : i16, i16, i16, i16, i16, i16, i16, i16
}

// 65520 is the first value that becomes infinity.
// CHECK-LABEL: func.func @encode_f16_ieee
func.func @encode_f16_ieee() -> (i16, i16, i16, i16, i16, i16) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 31743 : i16
  // CHECK-DAG: %[[C1:.*]] = arith.constant 31744 : i16
  // CHECK-DAG: %[[C2:.*]] = arith.constant -1024 : i16
  // CHECK-DAG: %[[C3:.*]] = arith.constant 32767 : i16
  %x0 = arith.constant 65504.0 : f32
  %e0 = msamp.encode ieee %x0 : f32 -> f16
  %r0 = arith.bitcast %e0 : f16 to i16
  %x1 = arith.constant 65519.0 : f32
  %e1 = msamp.encode ieee %x1 : f32 -> f16
  %r1 = arith.bitcast %e1 : f16 to i16
  %x2 = arith.constant 65520.0 : f32
  %e2 = msamp.encode ieee %x2 : f32 -> f16
  %r2 = arith.bitcast %e2 : f16 to i16
  %x3 = arith.constant -1.0e10 : f32
  %e3 = msamp.encode ieee %x3 : f32 -> f16
  %r3 = arith.bitcast %e3 : f16 to i16
  %x4 = arith.constant 0x7F800000 : f32
  %e4 = msamp.encode ieee %x4 : f32 -> f16
  %r4 = arith.bitcast %e4 : f16 to i16
  %x5 = arith.constant 0xFFC00001 : f32
  %e5 = msamp.encode ieee %x5 : f32 -> f16
  %r5 = arith.bitcast %e5 : f16 to i16
  // CHECK: return %[[C0]], %[[C0]], %[[C1]], %[[C2]], %[[C1]], %[[C3]] :
  return %r0, %r1, %r2, %r3, %r4, %r5 : i16, i16, i16, i16, i16, i16
}

// The largest f32 rounds to infinity; subnormals of f32 stay.
// CHECK-LABEL: func.func @encode_bf16_ieee
func.func @encode_bf16_ieee() -> (i16, i16, i16, i16, i16, i16, i16, i16) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 32640 : i16
  // CHECK-DAG: %[[C1:.*]] = arith.constant -128 : i16
  // CHECK-DAG: %[[C2:.*]] = arith.constant 16256 : i16
  // CHECK-DAG: %[[C3:.*]] = arith.constant 16258 : i16
  // CHECK-DAG: %[[C4:.*]] = arith.constant 2 : i16
  // CHECK-DAG: %[[C5:.*]] = arith.constant 0 : i16
  // CHECK-DAG: %[[C6:.*]] = arith.constant 32767 : i16
  %x0 = arith.constant 0x7F7FFFFF : f32
  %e0 = msamp.encode ieee %x0 : f32 -> bf16
  %r0 = arith.bitcast %e0 : bf16 to i16
  %x1 = arith.constant 0xFF7FFFFF : f32
  %e1 = msamp.encode ieee %x1 : f32 -> bf16
  %r1 = arith.bitcast %e1 : bf16 to i16
  %x2 = arith.constant 0x3F808000 : f32
  %e2 = msamp.encode ieee %x2 : f32 -> bf16
  %r2 = arith.bitcast %e2 : bf16 to i16
  %x3 = arith.constant 0x3F818000 : f32
  %e3 = msamp.encode ieee %x3 : f32 -> bf16
  %r3 = arith.bitcast %e3 : bf16 to i16
  %x4 = arith.constant 0x00018000 : f32
  %e4 = msamp.encode ieee %x4 : f32 -> bf16
  %r4 = arith.bitcast %e4 : bf16 to i16
  %x5 = arith.constant 0x00008000 : f32
  %e5 = msamp.encode ieee %x5 : f32 -> bf16
  %r5 = arith.bitcast %e5 : bf16 to i16
  %x6 = arith.constant 0x7FC00000 : f32
  %e6 = msamp.encode ieee %x6 : f32 -> bf16
  %r6 = arith.bitcast %e6 : bf16 to i16
  %x7 = arith.constant 0xFFC00001 : f32
  %e7 = msamp.encode ieee %x7 : f32 -> bf16
  %r7 = arith.bitcast %e7 : bf16 to i16
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]], %[[C4]], %[[C5]], %[[C6]], %[[C6]] :
  return %r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7 : i16, i16, i16, i16, i16, i16, i16, i16
}

// The largest f32 stays finite.
// CHECK-LABEL: func.func @encode_bf16_saturates
func.func @encode_bf16_saturates() -> (i16, i16, i16, i16) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 32639 : i16
  // CHECK-DAG: %[[C1:.*]] = arith.constant -129 : i16
  // CHECK-DAG: %[[C2:.*]] = arith.constant 32767 : i16
  %x0 = arith.constant 0x7F7FFFFF : f32
  %e0 = msamp.encode saturate %x0 : f32 -> bf16
  %r0 = arith.bitcast %e0 : bf16 to i16
  %x1 = arith.constant 0xFF7FFFFF : f32
  %e1 = msamp.encode saturate %x1 : f32 -> bf16
  %r1 = arith.bitcast %e1 : bf16 to i16
  %x2 = arith.constant 0x7F800000 : f32
  %e2 = msamp.encode saturate %x2 : f32 -> bf16
  %r2 = arith.bitcast %e2 : bf16 to i16
  %x3 = arith.constant 0xFFC00001 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> bf16
  %r3 = arith.bitcast %e3 : bf16 to i16
  // CHECK: return %[[C0]], %[[C1]], %[[C0]], %[[C2]] :
  return %r0, %r1, %r2, %r3 : i16, i16, i16, i16
}

// f32 passes; only NaN changes.
// CHECK-LABEL: func.func @encode_f32
func.func @encode_f32() -> (i32, i32, i32, i32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 1069547520 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1 : i32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 2139095040 : i32
  // CHECK-DAG: %[[C3:.*]] = arith.constant 2147483647 : i32
  %x0 = arith.constant 1.5 : f32
  %e0 = msamp.encode ieee %x0 : f32 -> f32
  %r0 = arith.bitcast %e0 : f32 to i32
  %x1 = arith.constant 0x00000001 : f32
  %e1 = msamp.encode ieee %x1 : f32 -> f32
  %r1 = arith.bitcast %e1 : f32 to i32
  %x2 = arith.constant 0x7F800000 : f32
  %e2 = msamp.encode ieee %x2 : f32 -> f32
  %r2 = arith.bitcast %e2 : f32 to i32
  %x3 = arith.constant 0xFFC00001 : f32
  %e3 = msamp.encode ieee %x3 : f32 -> f32
  %r3 = arith.bitcast %e3 : f32 to i32
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]] :
  return %r0, %r1, %r2, %r3 : i32, i32, i32, i32
}

// A saturating cast limits infinities, f32's too.
// CHECK-LABEL: func.func @encode_f32_saturates
func.func @encode_f32_saturates() -> (i32, i32, i32, i32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 2139095039 : i32
  // CHECK-DAG: %[[C1:.*]] = arith.constant -8388609 : i32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 2147483647 : i32
  %x0 = arith.constant 0x7F800000 : f32
  %e0 = msamp.encode saturate %x0 : f32 -> f32
  %r0 = arith.bitcast %e0 : f32 to i32
  %x1 = arith.constant 0xFF800000 : f32
  %e1 = msamp.encode saturate %x1 : f32 -> f32
  %r1 = arith.bitcast %e1 : f32 to i32
  %x2 = arith.constant 0x7F7FFFFF : f32
  %e2 = msamp.encode saturate %x2 : f32 -> f32
  %r2 = arith.bitcast %e2 : f32 to i32
  %x3 = arith.constant 0xFFC00001 : f32
  %e3 = msamp.encode saturate %x3 : f32 -> f32
  %r3 = arith.bitcast %e3 : f32 to i32
  // CHECK: return %[[C0]], %[[C1]], %[[C0]], %[[C2]] :
  return %r0, %r1, %r2, %r3 : i32, i32, i32, i32
}

// Smallest subnormal, largest finite, both zeros, both NaNs.
// CHECK-LABEL: func.func @decode_E4M3
func.func @decode_E4M3() -> (f32, f32, f32, f32, f32, f32, f32, f32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 0.001953125 : f32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 1.562500e-02 : f32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 4.480000e+02 : f32
  // CHECK-DAG: %[[C3:.*]] = arith.constant -4.480000e+02 : f32
  // CHECK-DAG: %[[C4:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[C5:.*]] = arith.constant -0.000000e+00 : f32
  // CHECK-DAG: %[[C6:.*]] = arith.constant 0x7F{{[C-F][0-9A-F]+}} : f32
  %c0 = arith.constant 0x01 : f8E4M3FN
  %d0 = msamp.decode %c0 : f8E4M3FN -> f32
  %c1 = arith.constant 0x08 : f8E4M3FN
  %d1 = msamp.decode %c1 : f8E4M3FN -> f32
  %c2 = arith.constant 0x7E : f8E4M3FN
  %d2 = msamp.decode %c2 : f8E4M3FN -> f32
  %c3 = arith.constant 0xFE : f8E4M3FN
  %d3 = msamp.decode %c3 : f8E4M3FN -> f32
  %c4 = arith.constant 0x00 : f8E4M3FN
  %d4 = msamp.decode %c4 : f8E4M3FN -> f32
  %c5 = arith.constant 0x80 : f8E4M3FN
  %d5 = msamp.decode %c5 : f8E4M3FN -> f32
  %c6 = arith.constant 0x7F : f8E4M3FN
  %d6 = msamp.decode %c6 : f8E4M3FN -> f32
  %c7 = arith.constant 0xFF : f8E4M3FN
  %d7 = msamp.decode %c7 : f8E4M3FN -> f32
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]], %[[C4]], %[[C5]], %[[C6]], %[[C6]] :
  return %d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7 : f32, f32, f32, f32, f32, f32, f32, f32
}

// The same, with infinities.
// CHECK-LABEL: func.func @decode_E5M2
func.func @decode_E5M2() -> (f32, f32, f32, f32, f32, f32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 1.52587891E-5 : f32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 5.734400e+04 : f32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 0x7F800000 : f32
  // CHECK-DAG: %[[C3:.*]] = arith.constant 0xFF800000 : f32
  // CHECK-DAG: %[[C4:.*]] = arith.constant 0x7F{{[C-F][0-9A-F]+}} : f32
  %c0 = arith.constant 0x01 : f8E5M2
  %d0 = msamp.decode %c0 : f8E5M2 -> f32
  %c1 = arith.constant 0x7B : f8E5M2
  %d1 = msamp.decode %c1 : f8E5M2 -> f32
  %c2 = arith.constant 0x7C : f8E5M2
  %d2 = msamp.decode %c2 : f8E5M2 -> f32
  %c3 = arith.constant 0xFC : f8E5M2
  %d3 = msamp.decode %c3 : f8E5M2 -> f32
  %c4 = arith.constant 0x7D : f8E5M2
  %d4 = msamp.decode %c4 : f8E5M2 -> f32
  %c5 = arith.constant 0xFF : f8E5M2
  %d5 = msamp.decode %c5 : f8E5M2 -> f32
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]], %[[C4]], %[[C4]] :
  return %d0, %d1, %d2, %d3, %d4, %d5 : f32, f32, f32, f32, f32, f32
}

// f16: smallest subnormal and largest.
// CHECK-LABEL: func.func @decode_f16_bf16
func.func @decode_f16_bf16() -> (f32, f32, f32, f32) {
  // CHECK-DAG: %[[C0:.*]] = arith.constant 5.96046448E-8 : f32
  // CHECK-DAG: %[[C1:.*]] = arith.constant 6.550400e+04 : f32
  // CHECK-DAG: %[[C2:.*]] = arith.constant 0xFF800000 : f32
  // CHECK-DAG: %[[C3:.*]] = arith.constant 0x7F{{[C-F][0-9A-F]+}} : f32
  %c0 = arith.constant 0x0001 : f16
  %d0 = msamp.decode %c0 : f16 -> f32
  %c1 = arith.constant 0x7BFF : f16
  %d1 = msamp.decode %c1 : f16 -> f32
  %c2 = arith.constant 0xFC00 : f16
  %d2 = msamp.decode %c2 : f16 -> f32
  %c3 = arith.constant 0x7C01 : f16
  %d3 = msamp.decode %c3 : f16 -> f32
  // CHECK: return %[[C0]], %[[C1]], %[[C2]], %[[C3]] :
  return %d0, %d1, %d2, %d3 : f32, f32, f32, f32
}

// decode undoes encode only where nothing was lost, so neither cancels the other
// for a value that is not known.
// CHECK-LABEL: func.func @unknown_values
func.func @unknown_values(%x: f32) -> f32 {
  // CHECK-NEXT: msamp.encode
  // CHECK-NEXT: msamp.decode
  %0 = msamp.encode saturate %x : f32 -> f16
  %1 = msamp.decode %0 : f16 -> f32
  return %1 : f32
}
