// Bounded scaling: a state's scale comes from a bound on its new values, which interval
// arithmetic finds once for all elements, from the largest magnitudes that were stored
// and the optimizer's scalars. No reduction over elements has to come first.
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step | FileCheck %s
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step --msamp-split-phases | FileCheck %s --check-prefix=PHASES

msamp.optimizer @moments states(first : signed, second : nonnegative) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  %keep = arith.constant 0.75 : f64
  msamp.yield %lr, %keep : f64, f64
} body(%param: f32, %grad: f32, %first: f32, %second: f32, %lr: f32, %keep: f32) {
  %kept = arith.mulf %keep, %first : f32
  %first1 = arith.addf %kept, %grad : f32
  %square = arith.mulf %grad, %grad : f32
  %second_kept = arith.mulf %second, %keep : f32
  %second1 = arith.addf %second_kept, %square : f32
  %root = math.sqrt %second1 : f32
  // Has no bound, and needs none: the weight is not scaled by one.
  %quotient = arith.divf %first1, %root : f32
  %update = arith.mulf %lr, %quotient : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new, %first1, %second1 : f32, f32, f32
}
msamp.layout @m {
  msamp.storage_class @c {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 4>>,
    master_weight = #msamp.storage<bf16>,
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>,
    first = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>,
    second = #msamp.storage<f16, scaling = <per_tensor, bounded>>}
  msamp.storage_class @plain {
    weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    first = #msamp.storage<f32>, second = #msamp.storage<f32>}
  msamp.tensor "w" : tensor<4x8xf32> class(@c)
  msamp.tensor "b" : tensor<8xf32> class(@plain)
}

// CHECK-LABEL: msamp.kernel @c class(@c) {
// The body.
// CHECK: %[[G:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: msamp.load "first" : f8E4M3FN
// CHECK: %[[KEEP:.*]] = msamp.uniform scalar "1" : f32
// CHECK: %[[FIRST:.*]] = arith.addf
// CHECK: %[[SECOND:.*]] = arith.addf
// CHECK: math.sqrt %[[SECOND]]

// The first moment: keep * [-first, first] + [-grad, grad]. Its amax is found too, but
// only reported.
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "first" : i32
// CHECK-DAG: %[[GA:.*]] = msamp.uniform stored_amax "grad" : f32
// CHECK-DAG: %[[GN:.*]] = arith.negf %[[GA]] : f32
// CHECK-DAG: %[[FA:.*]] = msamp.uniform stored_amax "first" : f32
// CHECK-DAG: %[[FN:.*]] = arith.negf %[[FA]] : f32
// CHECK-DAG: %[[K:.*]] = msamp.uniform scalar "1" : f32
// CHECK: %[[A:.*]] = arith.mulf %[[K]], %[[FN]] : f32
// CHECK: %[[B:.*]] = arith.mulf %[[K]], %[[FA]] : f32
// CHECK-DAG: %[[LOW:.*]] = arith.minimumf %[[A]], %[[B]] : f32
// CHECK-DAG: %[[HIGH:.*]] = arith.maximumf %[[A]], %[[B]] : f32
// CHECK-DAG: %[[LOW1:.*]] = arith.addf %[[LOW]], %[[GN]] : f32
// CHECK-DAG: %[[HIGH1:.*]] = arith.addf %[[HIGH]], %[[GA]] : f32
// CHECK-DAG: %[[HM:.*]] = math.absf %[[HIGH1]] : f32
// CHECK-DAG: %[[LM:.*]] = math.absf %[[LOW1]] : f32
// CHECK: %[[BOUND:.*]] = arith.maximumf %[[LM]], %[[HM]] : f32
// CHECK: %[[OLD:.*]] = msamp.uniform old_scale "first" : f32
// CHECK: %[[SCALE:.*]] = msamp.compute_scale %[[BOUND]], %[[OLD]] for f8E4M3FN
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as scale of "first" : i32
// CHECK: %[[X:.*]] = arith.mulf %[[FIRST]], %[[SCALE]] : f32
// CHECK: %[[Q:.*]] = msamp.encode saturate %[[X]] : f32 -> f8E4M3FN
// CHECK: msamp.store %[[Q]] to "first" : f8E4M3FN
// What it means in storage, for the next step's bound.
// CHECK: %[[D:.*]] = msamp.decode %[[Q]] : f8E4M3FN -> f32
// CHECK: %[[FIRST_STORED:.*]] = arith.mulf %[[D]], %{{.*}} : f32
// Within its bound nothing saturates.
// CHECK-NOT: as saturated of "first"
// CHECK: as flushed of "first"
// CHECK-NOT: as saturated of "first"

// The second: [0, second] * keep + [0, grad^2]; a square is not negative.
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "second" : i32
// CHECK-DAG: %[[GA:.*]] = msamp.uniform stored_amax "grad" : f32
// CHECK-DAG: %[[GN:.*]] = arith.negf %[[GA]] : f32
// CHECK-DAG: %[[SA:.*]] = msamp.uniform stored_amax "second" : f32
// CHECK-DAG: %[[K:.*]] = msamp.uniform scalar "1" : f32
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[GH:.*]] = math.absf %[[GA]] : f32
// CHECK: %[[GL:.*]] = math.absf %[[GN]] : f32
// CHECK: %[[GM:.*]] = arith.maximumf %[[GL]], %[[GH]] : f32
// CHECK: %[[SQUARE_ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[GM]], %[[GM]] : f32
// CHECK: %[[A:.*]] = arith.mulf %{{.*}}, %[[K]] : f32
// CHECK: %[[B:.*]] = arith.mulf %[[SA]], %[[K]] : f32
// CHECK-DAG: %[[LOW:.*]] = arith.minimumf %[[A]], %[[B]] : f32
// CHECK-DAG: %[[HIGH:.*]] = arith.maximumf %[[A]], %[[B]] : f32
// CHECK-DAG: %[[LOW1:.*]] = arith.addf %[[LOW]], %[[SQUARE_ZERO]] : f32
// CHECK-DAG: %[[HIGH1:.*]] = arith.addf %[[HIGH]], %[[SQUARE]] : f32
// CHECK-DAG: %[[HM:.*]] = math.absf %[[HIGH1]] : f32
// CHECK-DAG: %[[LM:.*]] = math.absf %[[LOW1]] : f32
// CHECK: %[[BOUND:.*]] = arith.maximumf %[[LM]], %[[HM]] : f32
// CHECK: msamp.compute_scale %[[BOUND]], %{{.*}} for f16
// CHECK: msamp.store %{{.*}} to "second" : f16

// The largest magnitudes stored of what the body reads: of the master weight, not of the
// weight beside it.
// CHECK-NOT: as stored
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as stored of "master_weight" : i32
// CHECK: %[[BITS:.*]] = arith.bitcast %[[FIRST_STORED]] : f32 to i32
// CHECK: %[[MAGNITUDE:.*]] = arith.andi %[[BITS]], %{{.*}} : i32
// CHECK: msamp.reduce max %[[MAGNITUDE]] scope(tensor) as stored of "first" : i32
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as stored of "second" : i32
// CHECK-NOT: as stored

// A class without bounds pays nothing for them.
// CHECK-LABEL: msamp.kernel @plain class(@plain) {
// CHECK-NOT: stored

// The reduce phase looks at the gradient, and fills the weight's history: nothing waits
// for the moments.
// PHASES-LABEL: msamp.kernel @c_reduce
// PHASES-NOT: of "{{first|second}}"
// PHASES-LABEL: msamp.kernel @c_store
// PHASES: as amax of "first"
// PHASES-NOT: msamp.uniform amax "first"
// PHASES: as amax of "second"
// PHASES-NOT: msamp.uniform amax "{{first|second}}"
func.func @step(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, first>, %s: !msamp.bundle<@m, second>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, first>, !msamp.bundle<@m, second>) {
  %0:4 = msamp.wrapped_update @moments weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%v, %s : !msamp.bundle<@m, first>, !msamp.bundle<@m, second>)
  return %0#0, %0#1, %0#2, %0#3 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, first>, !msamp.bundle<@m, second>
}
