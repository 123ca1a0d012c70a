// decode and encode become integer and f32 arithmetic, for scalars and vectors, with no
// branch and no call; f16 uses the target's conversions where the function says so,
// and only there.
// RUN: msamp-opt %s --msamp-expand-casts | FileCheck %s --implicit-check-not=msamp.decode --implicit-check-not=msamp.encode

// CHECK-LABEL: func.func @decode_E4M3
// CHECK-SAME: (%[[X:.*]]: f8E4M3FN) -> f32
// CHECK-NEXT: %[[CODE:.*]] = arith.bitcast %[[X]] : f8E4M3FN to i8
// CHECK-NEXT: arith.extui %[[CODE]] : i8 to i32
// CHECK-NOT: {{extf|truncf|math\.|call|cf\.}}
// CHECK: return %{{.*}} : f32
func.func @decode_E4M3(%x: f8E4M3FN) -> f32 {
  %0 = msamp.decode %x : f8E4M3FN -> f32
  return %0 : f32
}

// CHECK-LABEL: func.func @decode_vector
// CHECK: arith.bitcast %{{.*}} : vector<16xf8E5M2> to vector<16xi8>
// CHECK-NOT: {{extf|truncf|vector\.extract}}
// CHECK: return %{{.*}} : vector<16xf32>
func.func @decode_vector(%x: vector<16xf8E5M2>) -> vector<16xf32> {
  %0 = msamp.decode %x : vector<16xf8E5M2> -> vector<16xf32>
  return %0 : vector<16xf32>
}

// bf16 is the upper half of an f32.
// CHECK-LABEL: func.func @decode_bf16
// CHECK-NOT: {{arith\.(subf|mulf|addf|extf)}}
// CHECK: return %{{.*}} : f32
func.func @decode_bf16(%x: bf16) -> f32 {
  %0 = msamp.decode %x : bf16 -> f32
  return %0 : f32
}

// CHECK-LABEL: func.func @decode_f32
// CHECK-SAME: (%[[X:.*]]: f32)
// CHECK-NEXT: return %[[X]]
func.func @decode_f32(%x: f32) -> f32 {
  %0 = msamp.decode %x : f32 -> f32
  return %0 : f32
}

// CHECK-LABEL: func.func @encode_E4M3
// CHECK-NOT: {{extf|truncf|math\.|call|cf\.}}
// CHECK: %[[CODE:.*]] = arith.trunci %{{.*}} : i32 to i8
// CHECK: %[[R:.*]] = arith.bitcast %[[CODE]] : i8 to f8E4M3FN
// CHECK: return %[[R]]
func.func @encode_E4M3(%x: f32) -> f8E4M3FN {
  %0 = msamp.encode saturate %x : f32 -> f8E4M3FN
  return %0 : f8E4M3FN
}

// CHECK-LABEL: func.func @encode_vectors
// CHECK-NOT: {{extf|truncf|vector\.extract}}
// CHECK: return %{{.*}} : vector<3xf16>, vector<2x4xbf16>
func.func @encode_vectors(%x: vector<3xf32>, %y: vector<2x4xf32>) -> (vector<3xf16>, vector<2x4xbf16>) {
  %0 = msamp.encode ieee %x : vector<3xf32> -> vector<3xf16>
  %1 = msamp.encode ieee %y : vector<2x4xf32> -> vector<2x4xbf16>
  return %0, %1 : vector<3xf16>, vector<2x4xbf16>
}

// Both policies reach the last dialect: E4M3 limits to 448 (0x43E00000) or to 480.
// CHECK-LABEL: func.func @saturate
// CHECK: arith.constant 4.480000e+02 : f32
// CHECK-NOT: arith.constant 4.800000e+02 : f32
// CHECK-LABEL: func.func @ieee
// CHECK: arith.constant 4.800000e+02 : f32
// CHECK-NOT: arith.constant 4.480000e+02 : f32
func.func @saturate(%x: f32) -> f8E4M3FN {
  %0 = msamp.encode saturate %x : f32 -> f8E4M3FN
  return %0 : f8E4M3FN
}
func.func @ieee(%x: f32) -> f8E4M3FN {
  %0 = msamp.encode ieee %x : f32 -> f8E4M3FN
  return %0 : f8E4M3FN
}

// CHECK-LABEL: func.func @native
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.extf %{{.*}} : vector<4xf16> to vector<4xf32>
func.func @native(%x: f16, %y: f32, %z: vector<4xf8E5M2>) -> (f32, f16, vector<4xf32>) attributes {msamp.native_f16} {
  %0 = msamp.decode %x : f16 -> f32
  %1 = msamp.encode saturate %y : f32 -> f16
  %2 = msamp.decode %z : vector<4xf8E5M2> -> vector<4xf32>
  return %0, %1, %2 : f32, f16, vector<4xf32>
}

// The neighbour of a native function, after it and, in the next one, before it.
// CHECK-LABEL: func.func @after_native
// CHECK-NOT: {{extf|truncf}}
// CHECK-LABEL: func.func @native_again
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-LABEL: llvm.func @llvm_native
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-LABEL: llvm.func @llvm_not_native
// CHECK-NOT: {{extf|truncf}}
// CHECK: llvm.return
func.func @after_native(%x: f16, %y: f32) -> (f32, f16) {
  %0 = msamp.decode %x : f16 -> f32
  %1 = msamp.encode ieee %y : f32 -> f16
  return %0, %1 : f32, f16
}
func.func @native_again(%x: f16) -> f32 attributes {msamp.native_f16} {
  %0 = msamp.decode %x : f16 -> f32
  return %0 : f32
}
module @nested {
  llvm.func @llvm_native(%x: f16) -> f32 attributes {msamp.native_f16} {
    %0 = msamp.decode %x : f16 -> f32
    llvm.return %0 : f32
  }
  llvm.func @llvm_not_native(%x: f16) -> f32 {
    %0 = msamp.decode %x : f16 -> f32
    llvm.return %0 : f32
  }
}
