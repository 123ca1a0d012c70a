// The schedule follows from the scales: one pass where all of them are known before the
// step, two phases where one comes from the values of the step itself. It can be asked
// for, and is then right or an error.
// RUN: msamp-opt %s --msamp-split-phases | FileCheck %s
// RUN: sed '/^  msamp.kernel @current/,/^  }/d' %s > %t.mlir
// RUN: msamp-opt %t.mlir --msamp-split-phases | FileCheck %s --check-prefix=ONE
// RUN: msamp-opt %t.mlir --msamp-split-phases=schedule=one-pass | FileCheck %s --check-prefix=ONE
// RUN: msamp-opt %s --msamp-split-phases=schedule=two-phase | FileCheck %s
// RUN: not msamp-opt %s --msamp-split-phases=schedule=one-pass 2>&1 | FileCheck %s --check-prefix=NEEDS-TWO
// RUN: not msamp-opt %t.mlir --msamp-split-phases=schedule=two-phase 2>&1 | FileCheck %s --check-prefix=NEEDS-ONE

// CHECK: msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
// CHECK: msamp.kernel @delayed_store
// CHECK: msamp.kernel @current_store
// ONE: msamp.launch @step layout(@m) optimizer(@plain) schedule(one_pass) {
// ONE: msamp.kernel @delayed_reduce
// ONE: msamp.kernel @delayed_store
// NEEDS-TWO: split-phases-schedule.mlir:[[#]]:3: error: schedule one-pass is asked for, but class @current takes the scale of weight from the values of the step itself (current scaling); use delayed or bounded scaling
// NEEDS-ONE: error: schedule two-phase is asked for, but every scale is known before the step: one pass does all
msamp.layout @m {
  msamp.storage_class @delayed
  msamp.storage_class @current
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @step layout(@m) optimizer(@plain) {
  msamp.kernel @delayed class(@delayed) {
    %w = msamp.load "weight" : f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %history = msamp.uniform history "weight" : f32
    %zero = arith.constant 0.0 : f32
    %is_full = arith.cmpf oge, %history, %zero : f32
    %used = arith.select %is_full, %history, %amax : f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %used, %old for f16 : f32, f32 -> f32
    %x = arith.mulf %w, %scale : f32
    %q = msamp.encode saturate %x : f32 -> f16
    msamp.store %q to "weight" : f16
  }
  msamp.kernel @current class(@current) {
    %w = msamp.load "weight" : f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %x = arith.mulf %w, %scale : f32
    %q = msamp.encode saturate %x : f32 -> f16
    msamp.store %q to "weight" : f16
  }
}
