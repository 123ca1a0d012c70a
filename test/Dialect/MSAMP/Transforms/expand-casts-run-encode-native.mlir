// Encoding 3 * 2^16 values (every upper half of an f32, among them all ties of bf16 and
// FP8, what lies just above, infinities and NaNs) gives the codes of an exact
// reference: sum = sum * 31 + code, computed with integers of any size.
// REQUIRES: x86-64-v3
// RUN: msamp-opt %s --msamp-expand-casts --convert-vector-to-scf --convert-scf-to-cf --convert-vector-to-llvm --convert-arith-to-llvm --convert-index-to-llvm --convert-cf-to-llvm --convert-func-to-llvm --reconcile-unrealized-casts | \
// RUN:   mlir-runner -e main --entry-point-result=void --shared-libs=%mlir_libs/libmlir_runner_utils.so,%mlir_libs/libmlir_c_runner_utils.so | FileCheck %s

// CHECK: {{^}}7618190133892620874{{$}}
func.func @encode_f16_saturate() attributes {msamp.native_f16} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant 65536 : index
  %zero = arith.constant 0 : i64
  %c31 = arith.constant 31 : i64
  %one = arith.constant 1 : i32
  %sixteen = arith.constant 16 : i32
  %factor = arith.constant 40503 : i32
  %mask = arith.constant 65535 : i32
  %sum = scf.for %i = %c0 to %end step %c1 iter_args(%acc = %zero) -> i64 {
    %i32 = arith.index_cast %i : index to i32
    %high = arith.shli %i32, %sixteen : i32
    %product = arith.muli %i32, %factor : i32
    %low = arith.andi %product, %mask : i32
    %mixed = arith.ori %high, %low : i32
    %above = arith.ori %high, %one : i32
    %x0 = arith.bitcast %high : i32 to f32
    %p0 = msamp.encode saturate %x0 : f32 -> f16
    %code0 = arith.bitcast %p0 : f16 to i16
    %w0 = arith.extui %code0 : i16 to i64
    %m0 = arith.muli %acc, %c31 : i64
    %a0 = arith.addi %m0, %w0 : i64
    %x1 = arith.bitcast %mixed : i32 to f32
    %p1 = msamp.encode saturate %x1 : f32 -> f16
    %code1 = arith.bitcast %p1 : f16 to i16
    %w1 = arith.extui %code1 : i16 to i64
    %m1 = arith.muli %a0, %c31 : i64
    %a1 = arith.addi %m1, %w1 : i64
    %x2 = arith.bitcast %above : i32 to f32
    %p2 = msamp.encode saturate %x2 : f32 -> f16
    %code2 = arith.bitcast %p2 : f16 to i16
    %w2 = arith.extui %code2 : i16 to i64
    %m2 = arith.muli %a1, %c31 : i64
    %a2 = arith.addi %m2, %w2 : i64
    scf.yield %a2 : i64
  }
  vector.print %sum : i64
  return
}

// CHECK-NEXT: {{^}}-5710268474226083320{{$}}
func.func @encode_f16_ieee() attributes {msamp.native_f16} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant 65536 : index
  %zero = arith.constant 0 : i64
  %c31 = arith.constant 31 : i64
  %one = arith.constant 1 : i32
  %sixteen = arith.constant 16 : i32
  %factor = arith.constant 40503 : i32
  %mask = arith.constant 65535 : i32
  %sum = scf.for %i = %c0 to %end step %c1 iter_args(%acc = %zero) -> i64 {
    %i32 = arith.index_cast %i : index to i32
    %high = arith.shli %i32, %sixteen : i32
    %product = arith.muli %i32, %factor : i32
    %low = arith.andi %product, %mask : i32
    %mixed = arith.ori %high, %low : i32
    %above = arith.ori %high, %one : i32
    %x0 = arith.bitcast %high : i32 to f32
    %p0 = msamp.encode ieee %x0 : f32 -> f16
    %code0 = arith.bitcast %p0 : f16 to i16
    %w0 = arith.extui %code0 : i16 to i64
    %m0 = arith.muli %acc, %c31 : i64
    %a0 = arith.addi %m0, %w0 : i64
    %x1 = arith.bitcast %mixed : i32 to f32
    %p1 = msamp.encode ieee %x1 : f32 -> f16
    %code1 = arith.bitcast %p1 : f16 to i16
    %w1 = arith.extui %code1 : i16 to i64
    %m1 = arith.muli %a0, %c31 : i64
    %a1 = arith.addi %m1, %w1 : i64
    %x2 = arith.bitcast %above : i32 to f32
    %p2 = msamp.encode ieee %x2 : f32 -> f16
    %code2 = arith.bitcast %p2 : f16 to i16
    %w2 = arith.extui %code2 : i16 to i64
    %m2 = arith.muli %a1, %c31 : i64
    %a2 = arith.addi %m2, %w2 : i64
    scf.yield %a2 : i64
  }
  vector.print %sum : i64
  return
}

func.func @main() {
  call @encode_f16_saturate() : () -> ()
  call @encode_f16_ieee() : () -> ()
  return
}
