// What needs the amax of all elements moves to the store phase; the reduce phase
// keeps the amaxes and stores nothing; uniform reductions split nothing.
// RUN: msamp-opt %s --msamp-split-phases | FileCheck %s

msamp.layout @m {
  msamp.storage_class @current
  msamp.storage_class @delayed
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
  // CHECK-LABEL: msamp.kernel @current_reduce class(@current) phase(reduce) {
  // CHECK-NEXT: %[[L:.*]] = msamp.load "weight" : f32
  // CHECK-NEXT: %[[B:.*]] = arith.bitcast %[[L]] : f32 to i32
  // CHECK-NEXT: msamp.reduce max %[[B]] scope(tensor) as amax of "weight" : i32
  // CHECK-NEXT: }
  // CHECK-LABEL: msamp.kernel @current_store class(@current) phase(store) {
  // CHECK-NEXT: %[[L:.*]] = msamp.load "weight" : f32
  // CHECK-NEXT: %[[A:.*]] = msamp.uniform amax "weight" : f32
  // CHECK-NEXT: %[[AB:.*]] = arith.bitcast %[[A]] : f32 to i32
  // CHECK-NEXT: %[[AF:.*]] = arith.bitcast %[[AB]] : i32 to f32
  // CHECK-NEXT: %[[OLD:.*]] = msamp.uniform old_scale "weight" : f32
  // CHECK-NEXT: %[[S:.*]] = msamp.compute_scale %[[AF]], %[[OLD]] for f16
  // CHECK-NEXT: %[[SB:.*]] = arith.bitcast %[[S]] : f32 to i32
  // CHECK-NEXT: msamp.reduce max %[[SB]] scope(tensor) as scale of "weight" : i32
  // CHECK-NEXT: %[[SF:.*]] = arith.bitcast %[[SB]] : i32 to f32
  // CHECK-NEXT: %[[X:.*]] = arith.mulf %[[L]], %[[SF]] : f32
  // CHECK-NEXT: %[[Q:.*]] = msamp.encode saturate %[[X]] : f32 -> f16
  // CHECK-NEXT: msamp.store %[[Q]] to "weight" : f16
  // CHECK-NEXT: %[[H:.*]] = msamp.hash %[[Q]] : f16 -> i64
  // CHECK-NEXT: msamp.reduce sum %[[H]] scope(tensor) as fingerprint : i64
  // CHECK-NEXT: }
  msamp.kernel @current class(@current) {
    %w = msamp.load "weight" : f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %scale_bits = arith.bitcast %scale : f32 to i32
    %same = msamp.reduce max %scale_bits scope(tensor) as scale of "weight" : i32
    %same_scale = arith.bitcast %same : i32 to f32
    %x = arith.mulf %w, %same_scale : f32
    %q = msamp.encode saturate %x : f32 -> f16
    msamp.store %q to "weight" : f16
    %hash = msamp.hash %q : f16 -> i64
    %sum = msamp.reduce sum %hash scope(tensor) as fingerprint : i64
  }

  // A delayed role's amax is taken in both phases: the first is skipped once the
  // history is full.
  // CHECK-LABEL: msamp.kernel @delayed_reduce class(@delayed) phase(reduce) {
  // CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "weight" : i32
  // CHECK-NOT: msamp.store
  // CHECK-LABEL: msamp.kernel @delayed_store class(@delayed) phase(store) {
  // CHECK: %[[A:.*]] = msamp.uniform amax "weight" : f32
  // CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "weight" : i32
  // CHECK: %[[H:.*]] = msamp.uniform history "weight" : f32
  // CHECK: arith.select %{{.*}}, %[[H]],
  // CHECK: msamp.store
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

  // Nothing depends on a reduction: still two phases, for the gradient's amax must
  // be known before anything is stored.
  // CHECK-LABEL: msamp.kernel @plain_reduce class(@plain) phase(reduce) {
  // CHECK-NEXT: msamp.load "grad" : f32
  // CHECK-NEXT: arith.bitcast
  // CHECK-NEXT: msamp.reduce max %{{.*}} scope(all) as amax of "grad" : i32
  // CHECK-NEXT: }
  // CHECK-LABEL: msamp.kernel @plain_store class(@plain) phase(store) {
  // CHECK-NEXT: %[[G:.*]] = msamp.load "grad" : f32
  // CHECK-NEXT: msamp.store %[[G]] to "weight" : f32
  // CHECK-NEXT: }
  msamp.kernel @plain class(@plain) {
    %g = msamp.load "grad" : f32
    %bits = arith.bitcast %g : f32 to i32
    %max = msamp.reduce max %bits scope(all) as amax of "grad" : i32
    msamp.store %g to "weight" : f32
  }
}
