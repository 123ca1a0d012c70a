// Truncating f64 to FP8 rounds once, from the f64: 1.0625 + 2^-40 is above the tie, though
// its f32 is the tie itself.
// RUN: msamp-opt %s --msamp-expand-casts --convert-vector-to-scf --convert-scf-to-cf --convert-vector-to-llvm --convert-arith-to-llvm --convert-index-to-llvm --convert-cf-to-llvm --convert-func-to-llvm --reconcile-unrealized-casts | \
// RUN:   mlir-runner -e main --entry-point-result=void --shared-libs=%mlir_libs/libmlir_runner_utils.so,%mlir_libs/libmlir_c_runner_utils.so | FileCheck %s

// CHECK: ( 57, 56, 56, -71, 1, 126, 127, 127, -1, 127, 127, 0, -128, 0, 57, 57 )
// CHECK-NEXT: ( 60, 60, 60, -68, 20, 95, 95, 124, -4, 124, 127, 0, -128, 0, 61, 60 )
func.func @truncate(%x: vector<16xf64>) {
  %p0 = arith.truncf %x : vector<16xf64> to vector<16xf8E4M3FN>
  %c0 = arith.bitcast %p0 : vector<16xf8E4M3FN> to vector<16xi8>
  vector.print %c0 : vector<16xi8>
  %p1 = arith.truncf %x : vector<16xf64> to vector<16xf8E5M2>
  %c1 = arith.bitcast %p1 : vector<16xf8E5M2> to vector<16xi8>
  vector.print %c1 : vector<16xi8>
  return
}

func.func @main() {
  %x = arith.constant dense<[0x3FF1000000001000, 0x3FF1000000000000, 0x3FF0FFFFFFFFF000, 0xBFF1000000000004, 0x3F50000000000004, 0x407D000000000000, 0x407D000000000010, 0x7E37E43C8800759C, 0xFE37E43C8800759C, 0x7FF0000000000000, 0x7FF8000000000000, 0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x3FF2000000000080, 0x3FF2000000000000]> : vector<16xf64>
  call @truncate(%x) : (vector<16xf64>) -> ()
  return
}
