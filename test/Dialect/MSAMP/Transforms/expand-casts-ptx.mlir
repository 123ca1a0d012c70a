// In device code, `msamp.native_casts` stands for PTX's conversions of f16 and bf16 and
// `msamp.native_fp8` for those of FP8. Those of FP8 and saturating f16 work on pairs; a
// scalar is one half of a pair. What no instruction does stays integer arithmetic.
// RUN: msamp-opt %s --msamp-expand-casts | FileCheck %s --implicit-check-not=msamp.decode --implicit-check-not=msamp.encode

// CHECK-LABEL: gpu.module @sm_90
gpu.module @sm_90 attributes {msamp.native_casts, msamp.native_fp8} {
  // By way of f16, which holds every FP8 value.
  // CHECK-LABEL: func.func @decode_fp8_vector
  // CHECK-SAME: (%[[X:.*]]: vector<4xf8E4M3FN>)
  // CHECK: %[[CODES:.*]] = arith.bitcast %[[X]] : vector<4xf8E4M3FN> to vector<4xi8>
  // CHECK-DAG: %[[C0:.*]] = vector.extract %[[CODES]][0]
  // CHECK-DAG: %[[C1:.*]] = vector.extract %[[CODES]][1]
  // CHECK: %[[LOW:.*]] = vector.from_elements %[[C0]], %[[C1]] : vector<2xi8>
  // CHECK: %[[LOW_HALVES:.*]] = nvvm.convert.f8x2.to.f16x2 %[[LOW]] : vector<2xi8>(f8E4M3FN) -> vector<2xf16>
  // CHECK-DAG: %[[H0:.*]] = vector.extract %[[LOW_HALVES]][0]
  // CHECK-DAG: %[[H1:.*]] = vector.extract %[[LOW_HALVES]][1]
  // CHECK: %[[HIGH_HALVES:.*]] = nvvm.convert.f8x2.to.f16x2
  // CHECK-NOT: nvvm.convert
  // CHECK: %[[ALL:.*]] = vector.from_elements %[[H0]], %[[H1]], %{{.*}}, %{{.*}} : vector<4xf16>
  // CHECK: %[[WIDE:.*]] = arith.extf %[[ALL]] : vector<4xf16> to vector<4xf32>
  // CHECK-NEXT: return %[[WIDE]]
  func.func @decode_fp8_vector(%x: vector<4xf8E4M3FN>) -> vector<4xf32> {
    %0 = msamp.decode %x : vector<4xf8E4M3FN> -> vector<4xf32>
    return %0 : vector<4xf32>
  }

  // CHECK-LABEL: func.func @decode_fp8
  // CHECK-SAME: (%[[X:.*]]: f8E5M2)
  // CHECK: %[[CODE:.*]] = arith.bitcast %[[X]] : f8E5M2 to i8
  // CHECK: %[[PAIR:.*]] = vector.from_elements %[[CODE]], %{{.*}} : vector<2xi8>
  // CHECK: %[[HALVES:.*]] = nvvm.convert.f8x2.to.f16x2 %[[PAIR]] : vector<2xi8>(f8E5M2) -> vector<2xf16>
  // CHECK: %[[HALF:.*]] = vector.extract %[[HALVES]][0]
  // CHECK: arith.extf %[[HALF]] : f16 to f32
  // CHECK-NEXT: return
  func.func @decode_fp8(%x: f8E5M2) -> f32 {
    %0 = msamp.decode %x : f8E5M2 -> f32
    return %0 : f32
  }

  // CHECK-LABEL: func.func @decode_wide
  // CHECK-NEXT: arith.extf %{{.*}} : vector<4xf16> to vector<4xf32>
  // CHECK-NEXT: arith.extf %{{.*}} : f16 to f32
  // CHECK-NEXT: arith.extf %{{.*}} : vector<4xbf16> to vector<4xf32>
  // CHECK-NEXT: arith.extf %{{.*}} : bf16 to f32
  // CHECK-NEXT: return
  func.func @decode_wide(%a: vector<4xf16>, %b: f16, %c: vector<4xbf16>, %d: bf16) {
    %0 = msamp.decode %a : vector<4xf16> -> vector<4xf32>
    %1 = msamp.decode %b : f16 -> f32
    %2 = msamp.decode %c : vector<4xbf16> -> vector<4xf32>
    %3 = msamp.decode %d : bf16 -> f32
    return
  }

  // The first of the two operands is the upper half of the result.
  // CHECK-LABEL: func.func @encode_fp8_vector
  // CHECK-SAME: (%[[X:.*]]: vector<4xf32>)
  // CHECK-DAG: %[[X0:.*]] = vector.extract %[[X]][0]
  // CHECK-DAG: %[[X1:.*]] = vector.extract %[[X]][1]
  // CHECK: %[[LOW:.*]] = nvvm.convert.f32x2.to.f8x2 %[[X1]], %[[X0]] {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : i16(f8E5M2)
  // CHECK-DAG: %[[X2:.*]] = vector.extract %[[X]][2]
  // CHECK-DAG: %[[X3:.*]] = vector.extract %[[X]][3]
  // CHECK: %[[HIGH:.*]] = nvvm.convert.f32x2.to.f8x2 %[[X3]], %[[X2]] {{.*}} : i16(f8E5M2)
  // CHECK: %[[PAIRS:.*]] = vector.from_elements %[[LOW]], %[[HIGH]] : vector<2xi16>
  // CHECK: %[[CODES:.*]] = vector.bitcast %[[PAIRS]] : vector<2xi16> to vector<4xi8>
  // CHECK: arith.bitcast %[[CODES]] : vector<4xi8> to vector<4xf8E5M2>
  func.func @encode_fp8_vector(%x: vector<4xf32>) -> vector<4xf8E5M2> {
    %0 = msamp.encode saturate %x : vector<4xf32> -> vector<4xf8E5M2>
    return %0 : vector<4xf8E5M2>
  }

  // CHECK-LABEL: func.func @encode_fp8
  // CHECK-SAME: (%[[X:.*]]: f32)
  // CHECK: %[[PAIR:.*]] = nvvm.convert.f32x2.to.f8x2 %{{.*}}, %[[X]] {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : i16(f8E4M3FN)
  // CHECK: %[[CODE:.*]] = arith.trunci %[[PAIR]] : i16 to i8
  // CHECK: arith.bitcast %[[CODE]] : i8 to f8E4M3FN
  func.func @encode_fp8(%x: f32) -> f8E4M3FN {
    %0 = msamp.encode saturate %x : f32 -> f8E4M3FN
    return %0 : f8E4M3FN
  }

  // The FP8 instructions only saturate.
  // CHECK-LABEL: func.func @encode_fp8_ieee
  // CHECK-NOT: nvvm.convert
  // CHECK: arith.trunci %{{.*}} : vector<4xi32> to vector<4xi8>
  // CHECK: return
  func.func @encode_fp8_ieee(%x: vector<4xf32>) -> vector<4xf8E4M3FN> {
    %0 = msamp.encode ieee %x : vector<4xf32> -> vector<4xf8E4M3FN>
    return %0 : vector<4xf8E4M3FN>
  }

  // CHECK-LABEL: func.func @encode_f16
  // CHECK-SAME: (%[[V:.*]]: vector<2xf32>, %[[S:.*]]: f32)
  // CHECK: nvvm.convert.f32x2.to.f16x2 %{{.*}}, %{{.*}} {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : vector<2xf16>
  // CHECK: nvvm.convert.f32x2.to.f16x2 %{{.*}}, %[[S]] {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : vector<2xf16>
  // CHECK-NOT: nvvm.convert
  // CHECK-DAG: arith.truncf %[[V]] : vector<2xf32> to vector<2xf16>
  // CHECK-DAG: arith.truncf %[[S]] : f32 to f16
  // CHECK: return
  func.func @encode_f16(%v: vector<2xf32>, %s: f32) {
    %0 = msamp.encode saturate %v : vector<2xf32> -> vector<2xf16>
    %1 = msamp.encode saturate %s : f32 -> f16
    %2 = msamp.encode ieee %v : vector<2xf32> -> vector<2xf16>
    %3 = msamp.encode ieee %s : f32 -> f16
    return
  }

  // CHECK-LABEL: func.func @encode_bf16
  // CHECK-SAME: (%[[V:.*]]: vector<4xf32>, %[[S:.*]]: f32)
  // CHECK-NEXT: arith.truncf %[[V]] : vector<4xf32> to vector<4xbf16>
  // CHECK-NEXT: arith.truncf %[[S]] : f32 to bf16
  // CHECK-NEXT: return
  func.func @encode_bf16(%v: vector<4xf32>, %s: f32) {
    %0 = msamp.encode ieee %v : vector<4xf32> -> vector<4xbf16>
    %1 = msamp.encode ieee %s : f32 -> bf16
    return
  }

  // No instruction saturates a bf16.
  // CHECK-LABEL: func.func @encode_bf16_saturate
  // CHECK-NOT: arith.truncf
  // CHECK: arith.trunci %{{.*}} : i32 to i16
  // CHECK: return
  func.func @encode_bf16_saturate(%s: f32) -> bf16 {
    %0 = msamp.encode saturate %s : f32 -> bf16
    return %0 : bf16
  }

  // arith's own casts of FP8 follow IEEE.
  // CHECK-LABEL: func.func @arith_casts
  // CHECK: nvvm.convert.f8x2.to.f16x2
  // CHECK-NOT: nvvm.convert
  // CHECK: return
  func.func @arith_casts(%a: f8E4M3FN, %b: f32) {
    %0 = arith.extf %a : f8E4M3FN to f32
    %1 = arith.truncf %b : f32 to f8E4M3FN
    return
  }
}

// CHECK-LABEL: gpu.module @sm_80
gpu.module @sm_80 attributes {msamp.native_casts} {
  // CHECK: func.func @decode_without_fp8
  // CHECK: arith.extui %{{.*}} : vector<4xi8> to vector<4xi32>
  // CHECK-NOT: {{arith.extf|nvvm}}
  // CHECK: return
  func.func @decode_without_fp8(%x: vector<4xf8E4M3FN>) -> vector<4xf32> {
    %0 = msamp.decode %x : vector<4xf8E4M3FN> -> vector<4xf32>
    return %0 : vector<4xf32>
  }

  // CHECK: func.func @encode_without_fp8
  // CHECK-NOT: {{arith.truncf|nvvm}}
  // CHECK: arith.trunci %{{.*}} : i32 to i8
  // CHECK: return
  func.func @encode_without_fp8(%x: f32) -> f8E5M2 {
    %0 = msamp.encode saturate %x : f32 -> f8E5M2
    return %0 : f8E5M2
  }

  // CHECK: func.func @f16_as_before
  // CHECK: arith.extf %{{.*}} : f16 to f32
  // CHECK: nvvm.convert.f32x2.to.f16x2
  // CHECK: arith.truncf %{{.*}} : f32 to bf16
  func.func @f16_as_before(%x: f16, %y: f32) {
    %0 = msamp.decode %x : f16 -> f32
    %1 = msamp.encode saturate %y : f32 -> f16
    %2 = msamp.encode ieee %y : f32 -> bf16
    return
  }
}
