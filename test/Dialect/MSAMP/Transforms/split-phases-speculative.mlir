// The speculative schedule: `settle` compares the scales of both ends of what an amax can
// be; `narrow` finds the amax that few operands give; the store phase takes a scale that
// was settled, and finds the amax out itself, for the report and for the next bound.
// RUN: msamp-opt %s --msamp-split-phases=schedule=speculative --canonicalize --cse | FileCheck %s
// RUN: msamp-opt %s --msamp-split-phases=schedule=speculative --remarks-filter=msamp-split-phases -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

msamp.layout @m {
  msamp.storage_class @matrix {
    weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    first = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    second = #msamp.storage<f32>}
  msamp.storage_class @vector {
    weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    first = #msamp.storage<f32>, second = #msamp.storage<f32>}
}
msamp.optimizer @adam states(first : signed, second : nonnegative) hyper()
scalars(%step: i64) {
  %one = arith.constant 1.0 : f64
  msamp.yield %one, %one : f64, f64
} body(%param: f32, %grad: f32, %first: f32, %second: f32, %a: f32, %b: f32) {
  msamp.yield %param, %first, %second : f32, f32, f32
}

// CHECK-LABEL: msamp.launch @step layout(@m) optimizer(@adam) schedule(speculative) {
// REMARK: remark: [Passed] Speculated | Category:msamp-split-phases | Function=step | Remark="kernel @matrix: one pass where bounds tell every scale; where they leave first open, 2 bytes a parameter are read twice", Remark="; else two phases"
msamp.launch @step layout(@m) optimizer(@adam) {
  // What no bound settles is found as in two phases.
  // CHECK-LABEL: msamp.kernel @matrix_reduce class(@matrix) phase(reduce) {
  // CHECK: as amax of "grad"
  // CHECK: as amax of "first"
  // CHECK: as amax of "weight"

  // CHECK-LABEL: msamp.kernel @matrix_settle class(@matrix) phase(settle) {
  // Of the first moment: |a m + b g|. Of the gradient only the upper end is known.
  // CHECK-DAG: %[[INF:.*]] = arith.constant 0x7F800000 : f32
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK: %[[M:.*]] = msamp.uniform stored_amax "first" : f32
  // CHECK: %[[A:.*]] = msamp.uniform scalar "0" : f32
  // CHECK: %[[A_M:.*]] = math.absf %[[A]] : f32
  // CHECK: %[[AM:.*]] = arith.mulf %[[M]], %[[A_M]] : f32
  // CHECK: %[[G:.*]] = msamp.uniform stored_amax "grad" : f32
  // CHECK: %[[B:.*]] = msamp.uniform scalar "1" : f32
  // CHECK: %[[B_M:.*]] = math.absf %[[B]] : f32
  // CHECK-DAG: %[[BG:.*]] = arith.mulf %[[G]], %[[B_M]] : f32
  // CHECK: %[[LESS:.*]] = arith.subf %[[AM]], %[[BG]] : f32
  // CHECK: %[[LOW:.*]] = arith.maximumf %{{.*}}, %[[ZERO]] : f32
  // CHECK: %[[HIGH:.*]] = arith.addf %[[AM]], %[[BG]] : f32

  // Of the weight: |w - m / (sqrt(v) + e)|, where v = b (s + g^2), by the ratio of the first
  // moment to the root of the second, in units of what is stored.
  // CHECK: %[[W:.*]] = msamp.uniform stored_amax "weight" : f32
  // CHECK: %[[RATIO:.*]] = msamp.uniform stored_ratio "first" : f32
  // CHECK: %[[UNIT:.*]] = msamp.uniform scale_inv "first" : f32
  // CHECK: arith.mulf %[[RATIO]], %[[UNIT]] : f32
  // A gradient over the root of its square leaves the roots of weights alone.
  // CHECK: math.sqrt
  // What must hold for the bound to: that the second moment is finite, too.
  // CHECK: msamp.uniform stored_amax "second" : f32
  // CHECK: arith.select
  // CHECK: arith.andi
  // CHECK: %[[UPDATE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[INF]] : f32
  // CHECK: arith.subf %[[W]], %[[UPDATE]] : f32
  // CHECK: %[[W_LOW:.*]] = arith.maximumf %{{.*}}, %[[ZERO]] : f32
  // CHECK: %[[W_HIGH:.*]] = arith.addf %[[W]], %[[UPDATE]] : f32
  // CHECK: msamp.settle %[[LOW]], %[[HIGH]] of "first" for f8E4M3FN otherwise narrow
  // CHECK-NEXT: msamp.settle %[[W_LOW]], %[[W_HIGH]] of "weight" for f16 otherwise reduce
  // CHECK-NEXT: }

  // CHECK-LABEL: msamp.kernel @matrix_narrow class(@matrix) phase(narrow) {
  // CHECK-NOT: "weight"
  // CHECK: as amax of "grad"
  // CHECK-NOT: "second"
  // CHECK: as amax of "first"
  // CHECK-NEXT: }

  // CHECK-LABEL: msamp.kernel @matrix_store class(@matrix) phase(store) {
  // CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "first"
  // CHECK: %[[SETTLED:.*]] = msamp.uniform settled "first" : f32
  // CHECK: %[[IS:.*]] = arith.cmpf oge, %[[SETTLED]], %{{.*}} : f32
  // CHECK: %[[USED:.*]] = arith.select %[[IS]], %[[SETTLED]], %{{.*}} : f32
  // CHECK: msamp.compute_scale %[[USED]], %{{.*}} for f8E4M3FN
  // CHECK: %[[CODE:.*]] = msamp.encode saturate %{{.*}} : f32 -> f8E4M3FN
  // CHECK: msamp.store %[[CODE]] to "first"
  // CHECK: %[[ROOT:.*]] = math.sqrt %{{.*}} : f32
  // CHECK: as stored of "weight"
  // CHECK: %[[DECODED:.*]] = msamp.decode %[[CODE]]
  // CHECK: as stored of "first"
  // CHECK: as stored of "second"
  // CHECK: %[[DIVISOR:.*]] = arith.addf %[[ROOT]], %{{.*}} : f32
  // CHECK: arith.divf %[[DECODED]], %[[DIVISOR]] : f32
  // CHECK: as ratio of "first"
  msamp.kernel @matrix class(@matrix) {
    %mask = arith.constant 0x7FFFFFFF : i32
    %w8 = msamp.load "weight" : f16
    %w32 = msamp.decode %w8 : f16 -> f32
    %w_inv = msamp.uniform scale_inv "weight" : f32
    %w = arith.mulf %w32, %w_inv : f32
    %g8 = msamp.load "grad" : f8E4M3FN
    %g32 = msamp.decode %g8 : f8E4M3FN -> f32
    %g_inv = msamp.uniform scale_inv "grad" : f32
    %g = arith.mulf %g32, %g_inv : f32
    %g_bits = arith.bitcast %g : f32 to i32
    %g_magnitude = arith.andi %g_bits, %mask : i32
    %g_amax = msamp.reduce max %g_magnitude scope(all) as amax of "grad" : i32
    %m8 = msamp.load "first" : f8E4M3FN
    %m32 = msamp.decode %m8 : f8E4M3FN -> f32
    %m_inv = msamp.uniform scale_inv "first" : f32
    %m = arith.mulf %m32, %m_inv : f32
    %s = msamp.load "second" : f32
    %a = msamp.uniform scalar "0" : f32
    %b = msamp.uniform scalar "1" : f32
    %am = arith.mulf %m, %a : f32
    %bg = arith.mulf %g, %b : f32
    %m1 = arith.addf %am, %bg : f32
    %m_bits = arith.bitcast %m1 : f32 to i32
    %m_magnitude = arith.andi %m_bits, %mask : i32
    %m_max = msamp.reduce max %m_magnitude scope(tensor) as amax of "first" : i32
    %m_amax = arith.bitcast %m_max : i32 to f32
    %m_old = msamp.uniform old_scale "first" : f32
    %m_scale = msamp.compute_scale %m_amax, %m_old for f8E4M3FN : f32, f32 -> f32
    %m_scaled = arith.mulf %m1, %m_scale : f32
    %m_code = msamp.encode saturate %m_scaled : f32 -> f8E4M3FN
    msamp.store %m_code to "first" : f8E4M3FN
    %g2 = arith.mulf %g, %g : f32
    %sum = arith.addf %s, %g2 : f32
    %s1 = arith.mulf %sum, %b : f32
    msamp.store %s1 to "second" : f32
    %root = math.sqrt %s1 : f32
    %divisor = arith.addf %root, %a : f32
    %update = arith.divf %m1, %divisor : f32
    %w1 = arith.subf %w, %update : f32
    %w_bits = arith.bitcast %w1 : f32 to i32
    %w_magnitude = arith.andi %w_bits, %mask : i32
    %w_max = msamp.reduce max %w_magnitude scope(tensor) as amax of "weight" : i32
    %w_amax = arith.bitcast %w_max : i32 to f32
    %w_old = msamp.uniform old_scale "weight" : f32
    %w_scale = msamp.compute_scale %w_amax, %w_old for f16 : f32, f32 -> f32
    %w_scaled = arith.mulf %w1, %w_scale : f32
    %w_code = msamp.encode saturate %w_scaled : f32 -> f16
    msamp.store %w_code to "weight" : f16
  }
  // What has no scale has nothing to settle.
  // CHECK-LABEL: msamp.kernel @vector_reduce class(@vector) phase(reduce) {
  // CHECK-LABEL: msamp.kernel @vector_store class(@vector) phase(store) {
  // CHECK-NOT: msamp.kernel
  msamp.kernel @vector class(@vector) {
    %w = msamp.load "weight" : f32
    msamp.store %w to "weight" : f32
  }
}
