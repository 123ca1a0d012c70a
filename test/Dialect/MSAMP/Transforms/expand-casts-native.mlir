// The attribute `msamp.native_f16` is that of an enclosing op: a kernel outside of every
// function does not take it from the function before, and a module gives it to all
// of its functions.
// RUN: msamp-opt %s --msamp-expand-casts --split-input-file | FileCheck %s

msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// CHECK-LABEL: func.func @native
// CHECK: arith.extf
func.func @native(%x: f16) -> f32 attributes {msamp.native_f16} {
  %0 = msamp.decode %x : f16 -> f32
  return %0 : f32
}
// CHECK-LABEL: msamp.kernel @k
// CHECK-NOT: arith.extf
// CHECK: msamp.store
msamp.launch @l layout(@m) optimizer(@plain) {
  msamp.kernel @k class(@c) {
    %w = msamp.load "weight" : f16
    %0 = msamp.decode %w : f16 -> f32
    msamp.store %0 to "weight" : f32
  }
}

// -----

// CHECK-LABEL: module @all_native
module @all_native attributes {msamp.native_f16} {
  // CHECK: func.func @inherits
  // CHECK: arith.extf %{{.*}} : f16 to f32
  func.func @inherits(%x: f16) -> f32 {
    %0 = msamp.decode %x : f16 -> f32
    return %0 : f32
  }
}
