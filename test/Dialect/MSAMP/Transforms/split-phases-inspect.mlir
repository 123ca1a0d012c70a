// With `inspect`, each kernel gets a third form, for steps in which only the gradient has
// to be looked at: what the reduce phase has of it, and nothing else. The reduce
// and store phases are the same with and without.
// RUN: msamp-opt %s --msamp-split-phases=inspect=true | FileCheck %s
// RUN: msamp-opt %s --msamp-split-phases=inspect=true | sed '/phase(inspect)/,/^    }/d' > %t.with
// RUN: msamp-opt %s --msamp-split-phases > %t.without
// RUN: cmp %t.with %t.without

msamp.layout @m {
  msamp.storage_class @narrow
  msamp.storage_class @plain
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// CHECK-LABEL: msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
msamp.launch @step layout(@m) optimizer(@plain) {
  // CHECK-LABEL: msamp.kernel @narrow_inspect class(@narrow) phase(inspect) {
  // CHECK-NEXT: %[[G:.*]] = msamp.load "grad" : f8E5M2
  // CHECK-NEXT: %[[D:.*]] = msamp.decode %[[G]] : f8E5M2 -> f32
  // CHECK-NEXT: %[[I:.*]] = msamp.uniform scale_inv "grad" : f32
  // CHECK-NEXT: %[[X:.*]] = arith.mulf %[[D]], %[[I]] : f32
  // CHECK-NEXT: %[[B:.*]] = arith.bitcast %[[X]] : f32 to i32
  // CHECK-NEXT: msamp.reduce max %[[B]] scope(all) as amax of "grad" : i32
  // CHECK-NEXT: }
  // CHECK-LABEL: msamp.kernel @narrow_reduce class(@narrow) phase(reduce) {
  // CHECK: as amax of "grad"
  // CHECK: as amax of "weight"
  // CHECK-LABEL: msamp.kernel @narrow_store class(@narrow) phase(store) {
  msamp.kernel @narrow class(@narrow) {
    %g = msamp.load "grad" : f8E5M2
    %decoded = msamp.decode %g : f8E5M2 -> f32
    %grad_inv = msamp.uniform scale_inv "grad" : f32
    %grad = arith.mulf %decoded, %grad_inv : f32
    %grad_bits = arith.bitcast %grad : f32 to i32
    %grad_max = msamp.reduce max %grad_bits scope(all) as amax of "grad" : i32
    %w = msamp.load "weight" : f32
    %new = arith.subf %w, %grad : f32
    %bits = arith.bitcast %new : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %x = arith.mulf %new, %scale : f32
    %q = msamp.encode saturate %x : f32 -> f16
    msamp.store %q to "weight" : f16
  }

  // CHECK-LABEL: msamp.kernel @plain_inspect class(@plain) phase(inspect) {
  // CHECK-NEXT: %[[G:.*]] = msamp.load "grad" : f32
  // CHECK-NEXT: %[[B:.*]] = arith.bitcast %[[G]] : f32 to i32
  // CHECK-NEXT: msamp.reduce max %[[B]] scope(all) as amax of "grad" : i32
  // CHECK-NEXT: }
  // CHECK-LABEL: msamp.kernel @plain_reduce class(@plain) phase(reduce) {
  // CHECK-LABEL: msamp.kernel @plain_store class(@plain) phase(store) {
  msamp.kernel @plain class(@plain) {
    %g = msamp.load "grad" : f32
    %bits = arith.bitcast %g : f32 to i32
    %max = msamp.reduce max %bits scope(all) as amax of "grad" : i32
    msamp.store %g to "weight" : f32
  }
}
