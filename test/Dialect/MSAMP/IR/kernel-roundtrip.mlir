// Launches, kernels and the ops of one element print as text that parses to the
// same ops.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

msamp.layout @model {
  msamp.storage_class @matrix level(O3)
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// CHECK-LABEL: msamp.launch @unphased layout(@model) optimizer(@plain) {
// CHECK-NEXT: msamp.kernel @whole class(@matrix) {
// CHECK-NEXT: }
msamp.launch @unphased layout(@model) optimizer(@plain) {
  msamp.kernel @whole class(@matrix) {
  }
}

// CHECK-LABEL: msamp.launch @one_pass layout(@model) optimizer(@plain) schedule(one_pass) {
msamp.launch @one_pass layout(@model) optimizer(@plain) schedule(one_pass) {
}

// CHECK-LABEL: msamp.launch @phased layout(@model) optimizer(@plain) schedule(two_phase) attributes {note} {
msamp.launch @phased layout(@model) optimizer(@plain) schedule(two_phase) attributes {note} {
  // CHECK: msamp.kernel @a class(@matrix) phase(reduce) {
  msamp.kernel @a class(@matrix) phase(reduce) {
    // CHECK-NEXT: %[[W:.*]] = msamp.load "weight" : f8E4M3FN
    %w = msamp.load "weight" : f8E4M3FN
    // CHECK-NEXT: %[[X:.*]] = msamp.decode %[[W]] : f8E4M3FN -> f32
    %x = msamp.decode %w : f8E4M3FN -> f32
    // CHECK-NEXT: msamp.uniform scalar "0" : f32
    %0 = msamp.uniform scalar "0" : f32
    // CHECK-NEXT: msamp.uniform scale_inv "grad" : f32
    %1 = msamp.uniform scale_inv "grad" : f32
    // CHECK-NEXT: msamp.uniform old_scale "weight" : f32
    %2 = msamp.uniform old_scale "weight" : f32
    // CHECK-NEXT: msamp.uniform amax "weight" : f32
    %3 = msamp.uniform amax "weight" : f32
    // CHECK-NEXT: msamp.uniform history "weight" : f32
    %4 = msamp.uniform history "weight" : f32
    // CHECK-NEXT: msamp.uniform stored_amax "weight" : f32
    %stored = msamp.uniform stored_amax "weight" : f32
    // CHECK-NEXT: msamp.uniform stored_ratio "weight" : f32
    %ratio = msamp.uniform stored_ratio "weight" : f32
    // CHECK-NEXT: msamp.uniform settled "weight" : f32
    %settled = msamp.uniform settled "weight" : f32
    %5 = arith.bitcast %x : f32 to i32
    // CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "weight" : i32
    %6 = msamp.reduce max %5 scope(tensor) as amax of "weight" : i32
    // CHECK-NEXT: msamp.reduce max %{{.*}} scope(all) as scale of "weight" : i32
    %7 = msamp.reduce max %5 scope(all) as scale of "weight" : i32
    // CHECK-NEXT: msamp.reduce sum %{{.*}} scope(tensor) as saturated of "weight" : i32
    %8 = msamp.reduce sum %5 scope(tensor) as saturated of "weight" : i32
    // CHECK-NEXT: msamp.reduce sum %{{.*}} scope(tensor) as flushed of "weight" : i32
    %9 = msamp.reduce sum %5 scope(tensor) as flushed of "weight" : i32
    // CHECK-NEXT: msamp.reduce max %{{.*}} scope(tensor) as stored of "weight" : i32
    %10 = msamp.reduce max %5 scope(tensor) as stored of "weight" : i32
    // CHECK-NEXT: msamp.reduce max %{{.*}} scope(tensor) as ratio of "weight" : i32
    %11 = msamp.reduce max %5 scope(tensor) as ratio of "weight" : i32
  }
  // CHECK: msamp.kernel @b class(@matrix) phase(store) attributes {note} {
  msamp.kernel @b class(@matrix) phase(store) attributes {note} {
    %w = msamp.load "weight" : f32
    // CHECK: %[[H:.*]] = msamp.encode saturate %{{.*}} : f32 -> f16
    %h = msamp.encode saturate %w : f32 -> f16
    // CHECK-NEXT: %[[Q:.*]] = msamp.encode ieee %{{.*}} : f32 -> f8E5M2
    %q = msamp.encode ieee %w : f32 -> f8E5M2
    // CHECK-NEXT: msamp.count_loss flushed %[[W:.*]] as %[[H]] : f16 -> i32
    %flushed = msamp.count_loss flushed %w as %h : f16 -> i32
    // CHECK-NEXT: msamp.count_loss saturated %[[W]] as %[[Q]] : f8E5M2 -> i32
    %saturated = msamp.count_loss saturated %w as %q : f8E5M2 -> i32
    // CHECK-NEXT: msamp.store %[[H]] to "master_weight" : f16
    msamp.store %h to "master_weight" : f16
    // CHECK-NEXT: %[[HASH:.*]] = msamp.hash %[[Q]], %[[H]] : f8E5M2, f16 -> i64
    %hash = msamp.hash %q, %h : f8E5M2, f16 -> i64
    // CHECK-NEXT: msamp.reduce sum %[[HASH]] scope(tensor) as fingerprint : i64
    %sum = msamp.reduce sum %hash scope(tensor) as fingerprint : i64
  }
  // CHECK: msamp.kernel @c class(@matrix) phase(inspect) {
  msamp.kernel @c class(@matrix) phase(inspect) {
  }
}

// CHECK-LABEL: msamp.launch @speculative layout(@model) optimizer(@plain) schedule(speculative) {
msamp.launch @speculative layout(@model) optimizer(@plain) schedule(speculative) {
  // CHECK-NEXT: msamp.kernel @d class(@matrix) phase(settle) {
  msamp.kernel @d class(@matrix) phase(settle) {
    %low = arith.constant 1.0 : f32
    %high = msamp.uniform stored_amax "weight" : f32
    // CHECK: msamp.settle %{{.*}}, %{{.*}} of "weight" for f16 otherwise reduce
    msamp.settle %low, %high of "weight" for f16 otherwise reduce
    // CHECK-NEXT: msamp.settle %{{.*}}, %{{.*}} of "state" for f8E4M3FN otherwise narrow
    msamp.settle %low, %high of "state" for f8E4M3FN otherwise narrow
  }
  // CHECK: msamp.kernel @e class(@matrix) phase(narrow) {
  msamp.kernel @e class(@matrix) phase(narrow) {
  }
}

// CHECK-LABEL: func.func @casts_of_vectors
func.func @casts_of_vectors(%a: vector<16xf8E4M3FN>, %b: vector<2x3xf32>) -> (vector<16xf32>, vector<2x3xbf16>) {
  // CHECK: msamp.decode %{{.*}} : vector<16xf8E4M3FN> -> vector<16xf32>
  %0 = msamp.decode %a : vector<16xf8E4M3FN> -> vector<16xf32>
  // CHECK: msamp.encode ieee %{{.*}} : vector<2x3xf32> -> vector<2x3xbf16>
  %1 = msamp.encode ieee %b : vector<2x3xf32> -> vector<2x3xbf16>
  return %0, %1 : vector<16xf32>, vector<2x3xbf16>
}
