// encode to f32 keeps every number but infinities under `saturate`, and gives every NaN
// one code; the expansion agrees with the folder.
// RUN: msamp-opt %s --msamp-expand-casts --canonicalize | FileCheck %s
// RUN: msamp-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @ieee
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.500000e+00 : f32
// CHECK-DAG: %[[INF:.*]] = arith.constant 0x7F800000 : f32
// CHECK-DAG: %[[NAN:.*]] = arith.constant 2147483647 : i32
// CHECK: return %[[ONE]], %[[INF]], %[[NAN]]
func.func @ieee() -> (f32, f32, i32) {
  %one = arith.constant 1.5 : f32
  %inf = arith.constant 0x7F800000 : f32
  %nan = arith.constant 0xFFC00001 : f32
  %0 = msamp.encode ieee %one : f32 -> f32
  %1 = msamp.encode ieee %inf : f32 -> f32
  %2 = msamp.encode ieee %nan : f32 -> f32
  %bits = arith.bitcast %2 : f32 to i32
  return %0, %1, %bits : f32, f32, i32
}

// CHECK-LABEL: func.func @saturate
// CHECK-DAG: %[[MAX:.*]] = arith.constant 2139095039 : i32
// CHECK-DAG: %[[MIN:.*]] = arith.constant -8388609 : i32
// CHECK: return %[[MAX]], %[[MIN]]
func.func @saturate() -> (i32, i32) {
  %inf = arith.constant 0x7F800000 : f32
  %negative = arith.constant 0xFF800000 : f32
  %0 = msamp.encode saturate %inf : f32 -> f32
  %1 = msamp.encode saturate %negative : f32 -> f32
  %b0 = arith.bitcast %0 : f32 to i32
  %b1 = arith.bitcast %1 : f32 to i32
  return %b0, %b1 : i32, i32
}
