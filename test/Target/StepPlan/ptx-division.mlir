// PTX of roots and divisions: an approximation and corrections by fma where these are
// exact, the correctly rounded instruction elsewhere. Other fma are the optimizer's own.
// RUN: msamp-compile %s --target=cuda --arch=sm_90a -o %t.msplan
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_90a > %t.ptx
// RUN: FileCheck %s < %t.ptx
// RUN: FileCheck %s --check-prefix=NONE < %t.ptx
// RUN: sed 's/arith.mulf %grad, %root : f32/math.fma %grad, %root, %lr : f32/' %s > %t.mlir
// RUN: msamp-compile %t.mlir --target=cuda --arch=sm_90a -o %t.fma.msplan
// RUN: %python %S/Inputs/find-fma.py < %t.ptx | FileCheck %s --check-prefix=OWN --allow-empty
// RUN: msamp-plan-dump %t.fma.msplan --ptx --arch=sm_90a | %python %S/Inputs/find-fma.py | FileCheck %s --check-prefix=FMA

// CHECK: .visible .entry msamp_step(
// CHECK-DAG: rsqrt.approx.ftz.f32
// CHECK-DAG: sqrt.rn.f32
// CHECK-DAG: rcp.approx.ftz.f32
// CHECK-DAG: div.rn.f32
// CHECK-DAG: fma.rn.f32

// NONE-NOT: {{\.local|__local_depot|\.full|[[:space:]](ex2|lg2|sin|cos|tanh|sqrt|div)\.approx}}
// NONE-NOT: {{fma\.[a-z.]*ftz|(add|sub|mul|div|sqrt)\.(ftz|f32|f64|rn\.ftz)}}
// OWN-NOT: fma
// FMA: fma.rn.f32
msamp.optimizer @divides states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %lr: f32) {
  %root = math.sqrt %grad : f32
  %scaled = arith.mulf %grad, %root : f32
  %sum = arith.addf %root, %lr : f32
  %ratio = arith.divf %param, %sum : f32
  %product = arith.mulf %ratio, %scaled : f32
  %new = arith.addf %product, %param : f32
  msamp.yield %new : f32
}
msamp.layout @model {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4x8xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %g: !msamp.bundle<@model, grad>) -> !msamp.bundle<@model, weight> {
  %0 = msamp.wrapped_update @divides weight(%w : !msamp.bundle<@model, weight>) grad(%g : !msamp.bundle<@model, grad>)
  return %0 : !msamp.bundle<@model, weight>
}
