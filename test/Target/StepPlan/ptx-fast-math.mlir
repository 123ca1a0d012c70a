// With fast math, roots and divisions are the GPU's approximations, for vectors and for
// single elements alike. All else keeps its bits: no other fma, nothing flushed. The plan
// says so, and so does whatever prints it. CPU code is as ever.
// RUN: msamp-compile %s --target=cpu,cuda --arch=sm_90a --fast-math --explain -o %t.msplan | FileCheck %s --check-prefix=EXPLAIN
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_90a > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=NONE < %t.ptx
// RUN: %python %S/Inputs/find-fma.py < %t.ptx | FileCheck %s --check-prefix=OWN --allow-empty
// RUN: msamp-plan-dump %t.msplan | FileCheck %s --check-prefix=DUMP
// RUN: msamp-plan-dump %t.msplan --json | FileCheck %s --check-prefix=JSON
// RUN: not msamp-compile %s --fast-math -o %t.cpu 2>&1 | FileCheck %s --check-prefix=CPU

// CHECK: .visible .entry msamp_step(
// CHECK-DAG: sqrt.approx.f32
// CHECK-DAG: div.full.f32
// NONE-NOT: {{sqrt\.rn\.f32|div\.rn\.f32|rcp\.approx}}
// NONE-NOT: {{(add|sub|mul|div|sqrt)\.(ftz|f32|f64|rn\.ftz)}}
// OWN-NOT: fma
// EXPLAIN: one launch a step for all of them; fast math
// DUMP: device code, one launch a step, fast math:
// JSON: "fast_math": true
// CPU: msamp-compile: error: --fast-math goes with --target=cuda
msamp.optimizer @divides states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %lr: f32) {
  %root = math.sqrt %grad : f32
  %ratio = arith.divf %param, %root : f32
  msamp.yield %ratio : f32
}
msamp.layout @model {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4x8xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %g: !msamp.bundle<@model, grad>) -> !msamp.bundle<@model, weight> {
  %0 = msamp.wrapped_update @divides weight(%w : !msamp.bundle<@model, weight>) grad(%g : !msamp.bundle<@model, grad>)
  return %0 : !msamp.bundle<@model, weight>
}
