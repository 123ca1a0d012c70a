// Extending FP8 lowers to LLVM for every wider type and vector size; upstream leaves it.
// RUN: msamp-opt %s --msamp-expand-casts | FileCheck %s --implicit-check-not='arith.extf {{.*}}f8' --implicit-check-not='arith.truncf {{.*}}to {{(vector<[0-9]+x)?}}f8'
// RUN: msamp-opt %s --msamp-expand-casts --convert-vector-to-llvm --convert-arith-to-llvm --convert-func-to-llvm --reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM --implicit-check-not=unrealized_conversion_cast --implicit-check-not=arith.

// LLVM: llvm.func

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_scalar(
// CHECK-SAME: -> f32
// CHECK: return %{{.*}} : f32
func.func @extf_f8E4M3FN_to_f32_scalar(%x: f8E4M3FN) -> f32 {
  %0 = arith.extf %x : f8E4M3FN to f32
  return %0 : f32
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_1(
// CHECK-SAME: -> vector<1xf32>
// CHECK: return %{{.*}} : vector<1xf32>
func.func @extf_f8E4M3FN_to_f32_1(%x: vector<1xf8E4M3FN>) -> vector<1xf32> {
  %0 = arith.extf %x : vector<1xf8E4M3FN> to vector<1xf32>
  return %0 : vector<1xf32>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_2(
// CHECK-SAME: -> vector<2xf32>
// CHECK: return %{{.*}} : vector<2xf32>
func.func @extf_f8E4M3FN_to_f32_2(%x: vector<2xf8E4M3FN>) -> vector<2xf32> {
  %0 = arith.extf %x : vector<2xf8E4M3FN> to vector<2xf32>
  return %0 : vector<2xf32>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_3(
// CHECK-SAME: -> vector<3xf32>
// CHECK: return %{{.*}} : vector<3xf32>
func.func @extf_f8E4M3FN_to_f32_3(%x: vector<3xf8E4M3FN>) -> vector<3xf32> {
  %0 = arith.extf %x : vector<3xf8E4M3FN> to vector<3xf32>
  return %0 : vector<3xf32>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_4(
// CHECK-SAME: -> vector<4xf32>
// CHECK: return %{{.*}} : vector<4xf32>
func.func @extf_f8E4M3FN_to_f32_4(%x: vector<4xf8E4M3FN>) -> vector<4xf32> {
  %0 = arith.extf %x : vector<4xf8E4M3FN> to vector<4xf32>
  return %0 : vector<4xf32>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f32_16(
// CHECK-SAME: -> vector<16xf32>
// CHECK: return %{{.*}} : vector<16xf32>
func.func @extf_f8E4M3FN_to_f32_16(%x: vector<16xf8E4M3FN>) -> vector<16xf32> {
  %0 = arith.extf %x : vector<16xf8E4M3FN> to vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_scalar(
// CHECK-SAME: -> f16
// CHECK: return %{{.*}} : f16
func.func @extf_f8E4M3FN_to_f16_scalar(%x: f8E4M3FN) -> f16 {
  %0 = arith.extf %x : f8E4M3FN to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_1(
// CHECK-SAME: -> vector<1xf16>
// CHECK: return %{{.*}} : vector<1xf16>
func.func @extf_f8E4M3FN_to_f16_1(%x: vector<1xf8E4M3FN>) -> vector<1xf16> {
  %0 = arith.extf %x : vector<1xf8E4M3FN> to vector<1xf16>
  return %0 : vector<1xf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_2(
// CHECK-SAME: -> vector<2xf16>
// CHECK: return %{{.*}} : vector<2xf16>
func.func @extf_f8E4M3FN_to_f16_2(%x: vector<2xf8E4M3FN>) -> vector<2xf16> {
  %0 = arith.extf %x : vector<2xf8E4M3FN> to vector<2xf16>
  return %0 : vector<2xf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_3(
// CHECK-SAME: -> vector<3xf16>
// CHECK: return %{{.*}} : vector<3xf16>
func.func @extf_f8E4M3FN_to_f16_3(%x: vector<3xf8E4M3FN>) -> vector<3xf16> {
  %0 = arith.extf %x : vector<3xf8E4M3FN> to vector<3xf16>
  return %0 : vector<3xf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_4(
// CHECK-SAME: -> vector<4xf16>
// CHECK: return %{{.*}} : vector<4xf16>
func.func @extf_f8E4M3FN_to_f16_4(%x: vector<4xf8E4M3FN>) -> vector<4xf16> {
  %0 = arith.extf %x : vector<4xf8E4M3FN> to vector<4xf16>
  return %0 : vector<4xf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f16_16(
// CHECK-SAME: -> vector<16xf16>
// CHECK: return %{{.*}} : vector<16xf16>
func.func @extf_f8E4M3FN_to_f16_16(%x: vector<16xf8E4M3FN>) -> vector<16xf16> {
  %0 = arith.extf %x : vector<16xf8E4M3FN> to vector<16xf16>
  return %0 : vector<16xf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_scalar(
// CHECK-SAME: -> bf16
// CHECK: return %{{.*}} : bf16
func.func @extf_f8E4M3FN_to_bf16_scalar(%x: f8E4M3FN) -> bf16 {
  %0 = arith.extf %x : f8E4M3FN to bf16
  return %0 : bf16
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_1(
// CHECK-SAME: -> vector<1xbf16>
// CHECK: return %{{.*}} : vector<1xbf16>
func.func @extf_f8E4M3FN_to_bf16_1(%x: vector<1xf8E4M3FN>) -> vector<1xbf16> {
  %0 = arith.extf %x : vector<1xf8E4M3FN> to vector<1xbf16>
  return %0 : vector<1xbf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_2(
// CHECK-SAME: -> vector<2xbf16>
// CHECK: return %{{.*}} : vector<2xbf16>
func.func @extf_f8E4M3FN_to_bf16_2(%x: vector<2xf8E4M3FN>) -> vector<2xbf16> {
  %0 = arith.extf %x : vector<2xf8E4M3FN> to vector<2xbf16>
  return %0 : vector<2xbf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_3(
// CHECK-SAME: -> vector<3xbf16>
// CHECK: return %{{.*}} : vector<3xbf16>
func.func @extf_f8E4M3FN_to_bf16_3(%x: vector<3xf8E4M3FN>) -> vector<3xbf16> {
  %0 = arith.extf %x : vector<3xf8E4M3FN> to vector<3xbf16>
  return %0 : vector<3xbf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_4(
// CHECK-SAME: -> vector<4xbf16>
// CHECK: return %{{.*}} : vector<4xbf16>
func.func @extf_f8E4M3FN_to_bf16_4(%x: vector<4xf8E4M3FN>) -> vector<4xbf16> {
  %0 = arith.extf %x : vector<4xf8E4M3FN> to vector<4xbf16>
  return %0 : vector<4xbf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_bf16_16(
// CHECK-SAME: -> vector<16xbf16>
// CHECK: return %{{.*}} : vector<16xbf16>
func.func @extf_f8E4M3FN_to_bf16_16(%x: vector<16xf8E4M3FN>) -> vector<16xbf16> {
  %0 = arith.extf %x : vector<16xf8E4M3FN> to vector<16xbf16>
  return %0 : vector<16xbf16>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_scalar(
// CHECK-SAME: -> f64
// CHECK: return %{{.*}} : f64
func.func @extf_f8E4M3FN_to_f64_scalar(%x: f8E4M3FN) -> f64 {
  %0 = arith.extf %x : f8E4M3FN to f64
  return %0 : f64
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_1(
// CHECK-SAME: -> vector<1xf64>
// CHECK: return %{{.*}} : vector<1xf64>
func.func @extf_f8E4M3FN_to_f64_1(%x: vector<1xf8E4M3FN>) -> vector<1xf64> {
  %0 = arith.extf %x : vector<1xf8E4M3FN> to vector<1xf64>
  return %0 : vector<1xf64>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_2(
// CHECK-SAME: -> vector<2xf64>
// CHECK: return %{{.*}} : vector<2xf64>
func.func @extf_f8E4M3FN_to_f64_2(%x: vector<2xf8E4M3FN>) -> vector<2xf64> {
  %0 = arith.extf %x : vector<2xf8E4M3FN> to vector<2xf64>
  return %0 : vector<2xf64>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_3(
// CHECK-SAME: -> vector<3xf64>
// CHECK: return %{{.*}} : vector<3xf64>
func.func @extf_f8E4M3FN_to_f64_3(%x: vector<3xf8E4M3FN>) -> vector<3xf64> {
  %0 = arith.extf %x : vector<3xf8E4M3FN> to vector<3xf64>
  return %0 : vector<3xf64>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_4(
// CHECK-SAME: -> vector<4xf64>
// CHECK: return %{{.*}} : vector<4xf64>
func.func @extf_f8E4M3FN_to_f64_4(%x: vector<4xf8E4M3FN>) -> vector<4xf64> {
  %0 = arith.extf %x : vector<4xf8E4M3FN> to vector<4xf64>
  return %0 : vector<4xf64>
}

// CHECK-LABEL: func.func @extf_f8E4M3FN_to_f64_16(
// CHECK-SAME: -> vector<16xf64>
// CHECK: return %{{.*}} : vector<16xf64>
func.func @extf_f8E4M3FN_to_f64_16(%x: vector<16xf8E4M3FN>) -> vector<16xf64> {
  %0 = arith.extf %x : vector<16xf8E4M3FN> to vector<16xf64>
  return %0 : vector<16xf64>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_scalar(
// CHECK-SAME: -> f32
// CHECK: return %{{.*}} : f32
func.func @extf_f8E5M2_to_f32_scalar(%x: f8E5M2) -> f32 {
  %0 = arith.extf %x : f8E5M2 to f32
  return %0 : f32
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_1(
// CHECK-SAME: -> vector<1xf32>
// CHECK: return %{{.*}} : vector<1xf32>
func.func @extf_f8E5M2_to_f32_1(%x: vector<1xf8E5M2>) -> vector<1xf32> {
  %0 = arith.extf %x : vector<1xf8E5M2> to vector<1xf32>
  return %0 : vector<1xf32>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_2(
// CHECK-SAME: -> vector<2xf32>
// CHECK: return %{{.*}} : vector<2xf32>
func.func @extf_f8E5M2_to_f32_2(%x: vector<2xf8E5M2>) -> vector<2xf32> {
  %0 = arith.extf %x : vector<2xf8E5M2> to vector<2xf32>
  return %0 : vector<2xf32>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_3(
// CHECK-SAME: -> vector<3xf32>
// CHECK: return %{{.*}} : vector<3xf32>
func.func @extf_f8E5M2_to_f32_3(%x: vector<3xf8E5M2>) -> vector<3xf32> {
  %0 = arith.extf %x : vector<3xf8E5M2> to vector<3xf32>
  return %0 : vector<3xf32>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_4(
// CHECK-SAME: -> vector<4xf32>
// CHECK: return %{{.*}} : vector<4xf32>
func.func @extf_f8E5M2_to_f32_4(%x: vector<4xf8E5M2>) -> vector<4xf32> {
  %0 = arith.extf %x : vector<4xf8E5M2> to vector<4xf32>
  return %0 : vector<4xf32>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f32_16(
// CHECK-SAME: -> vector<16xf32>
// CHECK: return %{{.*}} : vector<16xf32>
func.func @extf_f8E5M2_to_f32_16(%x: vector<16xf8E5M2>) -> vector<16xf32> {
  %0 = arith.extf %x : vector<16xf8E5M2> to vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_scalar(
// CHECK-SAME: -> f16
// CHECK: return %{{.*}} : f16
func.func @extf_f8E5M2_to_f16_scalar(%x: f8E5M2) -> f16 {
  %0 = arith.extf %x : f8E5M2 to f16
  return %0 : f16
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_1(
// CHECK-SAME: -> vector<1xf16>
// CHECK: return %{{.*}} : vector<1xf16>
func.func @extf_f8E5M2_to_f16_1(%x: vector<1xf8E5M2>) -> vector<1xf16> {
  %0 = arith.extf %x : vector<1xf8E5M2> to vector<1xf16>
  return %0 : vector<1xf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_2(
// CHECK-SAME: -> vector<2xf16>
// CHECK: return %{{.*}} : vector<2xf16>
func.func @extf_f8E5M2_to_f16_2(%x: vector<2xf8E5M2>) -> vector<2xf16> {
  %0 = arith.extf %x : vector<2xf8E5M2> to vector<2xf16>
  return %0 : vector<2xf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_3(
// CHECK-SAME: -> vector<3xf16>
// CHECK: return %{{.*}} : vector<3xf16>
func.func @extf_f8E5M2_to_f16_3(%x: vector<3xf8E5M2>) -> vector<3xf16> {
  %0 = arith.extf %x : vector<3xf8E5M2> to vector<3xf16>
  return %0 : vector<3xf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_4(
// CHECK-SAME: -> vector<4xf16>
// CHECK: return %{{.*}} : vector<4xf16>
func.func @extf_f8E5M2_to_f16_4(%x: vector<4xf8E5M2>) -> vector<4xf16> {
  %0 = arith.extf %x : vector<4xf8E5M2> to vector<4xf16>
  return %0 : vector<4xf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f16_16(
// CHECK-SAME: -> vector<16xf16>
// CHECK: return %{{.*}} : vector<16xf16>
func.func @extf_f8E5M2_to_f16_16(%x: vector<16xf8E5M2>) -> vector<16xf16> {
  %0 = arith.extf %x : vector<16xf8E5M2> to vector<16xf16>
  return %0 : vector<16xf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_scalar(
// CHECK-SAME: -> bf16
// CHECK: return %{{.*}} : bf16
func.func @extf_f8E5M2_to_bf16_scalar(%x: f8E5M2) -> bf16 {
  %0 = arith.extf %x : f8E5M2 to bf16
  return %0 : bf16
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_1(
// CHECK-SAME: -> vector<1xbf16>
// CHECK: return %{{.*}} : vector<1xbf16>
func.func @extf_f8E5M2_to_bf16_1(%x: vector<1xf8E5M2>) -> vector<1xbf16> {
  %0 = arith.extf %x : vector<1xf8E5M2> to vector<1xbf16>
  return %0 : vector<1xbf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_2(
// CHECK-SAME: -> vector<2xbf16>
// CHECK: return %{{.*}} : vector<2xbf16>
func.func @extf_f8E5M2_to_bf16_2(%x: vector<2xf8E5M2>) -> vector<2xbf16> {
  %0 = arith.extf %x : vector<2xf8E5M2> to vector<2xbf16>
  return %0 : vector<2xbf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_3(
// CHECK-SAME: -> vector<3xbf16>
// CHECK: return %{{.*}} : vector<3xbf16>
func.func @extf_f8E5M2_to_bf16_3(%x: vector<3xf8E5M2>) -> vector<3xbf16> {
  %0 = arith.extf %x : vector<3xf8E5M2> to vector<3xbf16>
  return %0 : vector<3xbf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_4(
// CHECK-SAME: -> vector<4xbf16>
// CHECK: return %{{.*}} : vector<4xbf16>
func.func @extf_f8E5M2_to_bf16_4(%x: vector<4xf8E5M2>) -> vector<4xbf16> {
  %0 = arith.extf %x : vector<4xf8E5M2> to vector<4xbf16>
  return %0 : vector<4xbf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_bf16_16(
// CHECK-SAME: -> vector<16xbf16>
// CHECK: return %{{.*}} : vector<16xbf16>
func.func @extf_f8E5M2_to_bf16_16(%x: vector<16xf8E5M2>) -> vector<16xbf16> {
  %0 = arith.extf %x : vector<16xf8E5M2> to vector<16xbf16>
  return %0 : vector<16xbf16>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_scalar(
// CHECK-SAME: -> f64
// CHECK: return %{{.*}} : f64
func.func @extf_f8E5M2_to_f64_scalar(%x: f8E5M2) -> f64 {
  %0 = arith.extf %x : f8E5M2 to f64
  return %0 : f64
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_1(
// CHECK-SAME: -> vector<1xf64>
// CHECK: return %{{.*}} : vector<1xf64>
func.func @extf_f8E5M2_to_f64_1(%x: vector<1xf8E5M2>) -> vector<1xf64> {
  %0 = arith.extf %x : vector<1xf8E5M2> to vector<1xf64>
  return %0 : vector<1xf64>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_2(
// CHECK-SAME: -> vector<2xf64>
// CHECK: return %{{.*}} : vector<2xf64>
func.func @extf_f8E5M2_to_f64_2(%x: vector<2xf8E5M2>) -> vector<2xf64> {
  %0 = arith.extf %x : vector<2xf8E5M2> to vector<2xf64>
  return %0 : vector<2xf64>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_3(
// CHECK-SAME: -> vector<3xf64>
// CHECK: return %{{.*}} : vector<3xf64>
func.func @extf_f8E5M2_to_f64_3(%x: vector<3xf8E5M2>) -> vector<3xf64> {
  %0 = arith.extf %x : vector<3xf8E5M2> to vector<3xf64>
  return %0 : vector<3xf64>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_4(
// CHECK-SAME: -> vector<4xf64>
// CHECK: return %{{.*}} : vector<4xf64>
func.func @extf_f8E5M2_to_f64_4(%x: vector<4xf8E5M2>) -> vector<4xf64> {
  %0 = arith.extf %x : vector<4xf8E5M2> to vector<4xf64>
  return %0 : vector<4xf64>
}

// CHECK-LABEL: func.func @extf_f8E5M2_to_f64_16(
// CHECK-SAME: -> vector<16xf64>
// CHECK: return %{{.*}} : vector<16xf64>
func.func @extf_f8E5M2_to_f64_16(%x: vector<16xf8E5M2>) -> vector<16xf64> {
  %0 = arith.extf %x : vector<16xf8E5M2> to vector<16xf64>
  return %0 : vector<16xf64>
}
