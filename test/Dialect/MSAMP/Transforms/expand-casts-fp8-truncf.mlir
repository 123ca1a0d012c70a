// Truncating to FP8 lowers to LLVM for every vector size; upstream leaves it.
// RUN: msamp-opt %s --msamp-expand-casts | FileCheck %s --implicit-check-not='arith.extf {{.*}}f8' --implicit-check-not='arith.truncf {{.*}}to {{(vector<[0-9]+x)?}}f8'
// RUN: msamp-opt %s --msamp-expand-casts --convert-vector-to-llvm --convert-arith-to-llvm --convert-func-to-llvm --reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM --implicit-check-not=unrealized_conversion_cast --implicit-check-not=arith.

// LLVM: llvm.func

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_scalar(
// CHECK-SAME: -> f8E4M3FN
// CHECK: return %{{.*}} : f8E4M3FN
func.func @truncf_f32_to_f8E4M3FN_scalar(%x: f32) -> f8E4M3FN {
  %0 = arith.truncf %x : f32 to f8E4M3FN
  return %0 : f8E4M3FN
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_1(
// CHECK-SAME: -> vector<1xf8E4M3FN>
// CHECK: return %{{.*}} : vector<1xf8E4M3FN>
func.func @truncf_f32_to_f8E4M3FN_1(%x: vector<1xf32>) -> vector<1xf8E4M3FN> {
  %0 = arith.truncf %x : vector<1xf32> to vector<1xf8E4M3FN>
  return %0 : vector<1xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_2(
// CHECK-SAME: -> vector<2xf8E4M3FN>
// CHECK: return %{{.*}} : vector<2xf8E4M3FN>
func.func @truncf_f32_to_f8E4M3FN_2(%x: vector<2xf32>) -> vector<2xf8E4M3FN> {
  %0 = arith.truncf %x : vector<2xf32> to vector<2xf8E4M3FN>
  return %0 : vector<2xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_3(
// CHECK-SAME: -> vector<3xf8E4M3FN>
// CHECK: return %{{.*}} : vector<3xf8E4M3FN>
func.func @truncf_f32_to_f8E4M3FN_3(%x: vector<3xf32>) -> vector<3xf8E4M3FN> {
  %0 = arith.truncf %x : vector<3xf32> to vector<3xf8E4M3FN>
  return %0 : vector<3xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_4(
// CHECK-SAME: -> vector<4xf8E4M3FN>
// CHECK: return %{{.*}} : vector<4xf8E4M3FN>
func.func @truncf_f32_to_f8E4M3FN_4(%x: vector<4xf32>) -> vector<4xf8E4M3FN> {
  %0 = arith.truncf %x : vector<4xf32> to vector<4xf8E4M3FN>
  return %0 : vector<4xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E4M3FN_16(
// CHECK-SAME: -> vector<16xf8E4M3FN>
// CHECK: return %{{.*}} : vector<16xf8E4M3FN>
func.func @truncf_f32_to_f8E4M3FN_16(%x: vector<16xf32>) -> vector<16xf8E4M3FN> {
  %0 = arith.truncf %x : vector<16xf32> to vector<16xf8E4M3FN>
  return %0 : vector<16xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_scalar(
// CHECK-SAME: -> f8E4M3FN
// CHECK: return %{{.*}} : f8E4M3FN
func.func @truncf_f16_to_f8E4M3FN_scalar(%x: f16) -> f8E4M3FN {
  %0 = arith.truncf %x : f16 to f8E4M3FN
  return %0 : f8E4M3FN
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_1(
// CHECK-SAME: -> vector<1xf8E4M3FN>
// CHECK: return %{{.*}} : vector<1xf8E4M3FN>
func.func @truncf_f16_to_f8E4M3FN_1(%x: vector<1xf16>) -> vector<1xf8E4M3FN> {
  %0 = arith.truncf %x : vector<1xf16> to vector<1xf8E4M3FN>
  return %0 : vector<1xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_2(
// CHECK-SAME: -> vector<2xf8E4M3FN>
// CHECK: return %{{.*}} : vector<2xf8E4M3FN>
func.func @truncf_f16_to_f8E4M3FN_2(%x: vector<2xf16>) -> vector<2xf8E4M3FN> {
  %0 = arith.truncf %x : vector<2xf16> to vector<2xf8E4M3FN>
  return %0 : vector<2xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_3(
// CHECK-SAME: -> vector<3xf8E4M3FN>
// CHECK: return %{{.*}} : vector<3xf8E4M3FN>
func.func @truncf_f16_to_f8E4M3FN_3(%x: vector<3xf16>) -> vector<3xf8E4M3FN> {
  %0 = arith.truncf %x : vector<3xf16> to vector<3xf8E4M3FN>
  return %0 : vector<3xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_4(
// CHECK-SAME: -> vector<4xf8E4M3FN>
// CHECK: return %{{.*}} : vector<4xf8E4M3FN>
func.func @truncf_f16_to_f8E4M3FN_4(%x: vector<4xf16>) -> vector<4xf8E4M3FN> {
  %0 = arith.truncf %x : vector<4xf16> to vector<4xf8E4M3FN>
  return %0 : vector<4xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E4M3FN_16(
// CHECK-SAME: -> vector<16xf8E4M3FN>
// CHECK: return %{{.*}} : vector<16xf8E4M3FN>
func.func @truncf_f16_to_f8E4M3FN_16(%x: vector<16xf16>) -> vector<16xf8E4M3FN> {
  %0 = arith.truncf %x : vector<16xf16> to vector<16xf8E4M3FN>
  return %0 : vector<16xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_scalar(
// CHECK-SAME: -> f8E4M3FN
// CHECK: return %{{.*}} : f8E4M3FN
func.func @truncf_bf16_to_f8E4M3FN_scalar(%x: bf16) -> f8E4M3FN {
  %0 = arith.truncf %x : bf16 to f8E4M3FN
  return %0 : f8E4M3FN
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_1(
// CHECK-SAME: -> vector<1xf8E4M3FN>
// CHECK: return %{{.*}} : vector<1xf8E4M3FN>
func.func @truncf_bf16_to_f8E4M3FN_1(%x: vector<1xbf16>) -> vector<1xf8E4M3FN> {
  %0 = arith.truncf %x : vector<1xbf16> to vector<1xf8E4M3FN>
  return %0 : vector<1xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_2(
// CHECK-SAME: -> vector<2xf8E4M3FN>
// CHECK: return %{{.*}} : vector<2xf8E4M3FN>
func.func @truncf_bf16_to_f8E4M3FN_2(%x: vector<2xbf16>) -> vector<2xf8E4M3FN> {
  %0 = arith.truncf %x : vector<2xbf16> to vector<2xf8E4M3FN>
  return %0 : vector<2xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_3(
// CHECK-SAME: -> vector<3xf8E4M3FN>
// CHECK: return %{{.*}} : vector<3xf8E4M3FN>
func.func @truncf_bf16_to_f8E4M3FN_3(%x: vector<3xbf16>) -> vector<3xf8E4M3FN> {
  %0 = arith.truncf %x : vector<3xbf16> to vector<3xf8E4M3FN>
  return %0 : vector<3xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_4(
// CHECK-SAME: -> vector<4xf8E4M3FN>
// CHECK: return %{{.*}} : vector<4xf8E4M3FN>
func.func @truncf_bf16_to_f8E4M3FN_4(%x: vector<4xbf16>) -> vector<4xf8E4M3FN> {
  %0 = arith.truncf %x : vector<4xbf16> to vector<4xf8E4M3FN>
  return %0 : vector<4xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E4M3FN_16(
// CHECK-SAME: -> vector<16xf8E4M3FN>
// CHECK: return %{{.*}} : vector<16xf8E4M3FN>
func.func @truncf_bf16_to_f8E4M3FN_16(%x: vector<16xbf16>) -> vector<16xf8E4M3FN> {
  %0 = arith.truncf %x : vector<16xbf16> to vector<16xf8E4M3FN>
  return %0 : vector<16xf8E4M3FN>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_scalar(
// CHECK-SAME: -> f8E5M2
// CHECK: return %{{.*}} : f8E5M2
func.func @truncf_f32_to_f8E5M2_scalar(%x: f32) -> f8E5M2 {
  %0 = arith.truncf %x : f32 to f8E5M2
  return %0 : f8E5M2
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_1(
// CHECK-SAME: -> vector<1xf8E5M2>
// CHECK: return %{{.*}} : vector<1xf8E5M2>
func.func @truncf_f32_to_f8E5M2_1(%x: vector<1xf32>) -> vector<1xf8E5M2> {
  %0 = arith.truncf %x : vector<1xf32> to vector<1xf8E5M2>
  return %0 : vector<1xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_2(
// CHECK-SAME: -> vector<2xf8E5M2>
// CHECK: return %{{.*}} : vector<2xf8E5M2>
func.func @truncf_f32_to_f8E5M2_2(%x: vector<2xf32>) -> vector<2xf8E5M2> {
  %0 = arith.truncf %x : vector<2xf32> to vector<2xf8E5M2>
  return %0 : vector<2xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_3(
// CHECK-SAME: -> vector<3xf8E5M2>
// CHECK: return %{{.*}} : vector<3xf8E5M2>
func.func @truncf_f32_to_f8E5M2_3(%x: vector<3xf32>) -> vector<3xf8E5M2> {
  %0 = arith.truncf %x : vector<3xf32> to vector<3xf8E5M2>
  return %0 : vector<3xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_4(
// CHECK-SAME: -> vector<4xf8E5M2>
// CHECK: return %{{.*}} : vector<4xf8E5M2>
func.func @truncf_f32_to_f8E5M2_4(%x: vector<4xf32>) -> vector<4xf8E5M2> {
  %0 = arith.truncf %x : vector<4xf32> to vector<4xf8E5M2>
  return %0 : vector<4xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f32_to_f8E5M2_16(
// CHECK-SAME: -> vector<16xf8E5M2>
// CHECK: return %{{.*}} : vector<16xf8E5M2>
func.func @truncf_f32_to_f8E5M2_16(%x: vector<16xf32>) -> vector<16xf8E5M2> {
  %0 = arith.truncf %x : vector<16xf32> to vector<16xf8E5M2>
  return %0 : vector<16xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_scalar(
// CHECK-SAME: -> f8E5M2
// CHECK: return %{{.*}} : f8E5M2
func.func @truncf_f16_to_f8E5M2_scalar(%x: f16) -> f8E5M2 {
  %0 = arith.truncf %x : f16 to f8E5M2
  return %0 : f8E5M2
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_1(
// CHECK-SAME: -> vector<1xf8E5M2>
// CHECK: return %{{.*}} : vector<1xf8E5M2>
func.func @truncf_f16_to_f8E5M2_1(%x: vector<1xf16>) -> vector<1xf8E5M2> {
  %0 = arith.truncf %x : vector<1xf16> to vector<1xf8E5M2>
  return %0 : vector<1xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_2(
// CHECK-SAME: -> vector<2xf8E5M2>
// CHECK: return %{{.*}} : vector<2xf8E5M2>
func.func @truncf_f16_to_f8E5M2_2(%x: vector<2xf16>) -> vector<2xf8E5M2> {
  %0 = arith.truncf %x : vector<2xf16> to vector<2xf8E5M2>
  return %0 : vector<2xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_3(
// CHECK-SAME: -> vector<3xf8E5M2>
// CHECK: return %{{.*}} : vector<3xf8E5M2>
func.func @truncf_f16_to_f8E5M2_3(%x: vector<3xf16>) -> vector<3xf8E5M2> {
  %0 = arith.truncf %x : vector<3xf16> to vector<3xf8E5M2>
  return %0 : vector<3xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_4(
// CHECK-SAME: -> vector<4xf8E5M2>
// CHECK: return %{{.*}} : vector<4xf8E5M2>
func.func @truncf_f16_to_f8E5M2_4(%x: vector<4xf16>) -> vector<4xf8E5M2> {
  %0 = arith.truncf %x : vector<4xf16> to vector<4xf8E5M2>
  return %0 : vector<4xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_f16_to_f8E5M2_16(
// CHECK-SAME: -> vector<16xf8E5M2>
// CHECK: return %{{.*}} : vector<16xf8E5M2>
func.func @truncf_f16_to_f8E5M2_16(%x: vector<16xf16>) -> vector<16xf8E5M2> {
  %0 = arith.truncf %x : vector<16xf16> to vector<16xf8E5M2>
  return %0 : vector<16xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_scalar(
// CHECK-SAME: -> f8E5M2
// CHECK: return %{{.*}} : f8E5M2
func.func @truncf_bf16_to_f8E5M2_scalar(%x: bf16) -> f8E5M2 {
  %0 = arith.truncf %x : bf16 to f8E5M2
  return %0 : f8E5M2
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_1(
// CHECK-SAME: -> vector<1xf8E5M2>
// CHECK: return %{{.*}} : vector<1xf8E5M2>
func.func @truncf_bf16_to_f8E5M2_1(%x: vector<1xbf16>) -> vector<1xf8E5M2> {
  %0 = arith.truncf %x : vector<1xbf16> to vector<1xf8E5M2>
  return %0 : vector<1xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_2(
// CHECK-SAME: -> vector<2xf8E5M2>
// CHECK: return %{{.*}} : vector<2xf8E5M2>
func.func @truncf_bf16_to_f8E5M2_2(%x: vector<2xbf16>) -> vector<2xf8E5M2> {
  %0 = arith.truncf %x : vector<2xbf16> to vector<2xf8E5M2>
  return %0 : vector<2xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_3(
// CHECK-SAME: -> vector<3xf8E5M2>
// CHECK: return %{{.*}} : vector<3xf8E5M2>
func.func @truncf_bf16_to_f8E5M2_3(%x: vector<3xbf16>) -> vector<3xf8E5M2> {
  %0 = arith.truncf %x : vector<3xbf16> to vector<3xf8E5M2>
  return %0 : vector<3xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_4(
// CHECK-SAME: -> vector<4xf8E5M2>
// CHECK: return %{{.*}} : vector<4xf8E5M2>
func.func @truncf_bf16_to_f8E5M2_4(%x: vector<4xbf16>) -> vector<4xf8E5M2> {
  %0 = arith.truncf %x : vector<4xbf16> to vector<4xf8E5M2>
  return %0 : vector<4xf8E5M2>
}

// CHECK-LABEL: func.func @truncf_bf16_to_f8E5M2_16(
// CHECK-SAME: -> vector<16xf8E5M2>
// CHECK: return %{{.*}} : vector<16xf8E5M2>
func.func @truncf_bf16_to_f8E5M2_16(%x: vector<16xbf16>) -> vector<16xf8E5M2> {
  %0 = arith.truncf %x : vector<16xbf16> to vector<16xf8E5M2>
  return %0 : vector<16xf8E5M2>
}
