// PTX of a step with every narrow format: casts by instructions where the architecture
// has them. sm_80 converts f16 and bf16, and FP8 by integer arithmetic.
// RUN: msamp-compile %s --target=cuda --arch=sm_90a,sm_80 -o %t.msplan
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_90a > %t.90a
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_80 > %t.80
// RUN: FileCheck %s < %t.90a
// RUN: FileCheck %s --check-prefix=AMPERE < %t.80
// RUN: FileCheck %s --check-prefix=NONE < %t.90a
// RUN: FileCheck %s --check-prefix=NONE < %t.80
// RUN: FileCheck %s --check-prefix=NO-FP8 < %t.80

// Operands come in bulk. Eight elements a thread: 16 bytes of f16 and bf16, 8 of FP8.
// CHECK: .visible .entry msamp_step(
// CHECK-DAG: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{{.*}}], [{{.*}}], {{.*}}, [{{.*}}];
// CHECK-DAG: mbarrier.try_wait.parity.shared.b64
// CHECK-DAG: ld.shared.v4.b32
// CHECK-DAG: ld.shared.v2.b32
// CHECK-DAG: cvt.rn.f16x2.e4m3x2
// CHECK-DAG: cvt.rn.f16x2.e5m2x2
// CHECK-DAG: cvt.rn.satfinite.e4m3x2.f32
// CHECK-DAG: cvt.rn.satfinite.e5m2x2.f32
// CHECK-DAG: cvt.rn.satfinite.f16x2.f32
// CHECK-DAG: cvt.rn.bf16x2.f32
// CHECK-DAG: cvt.f32.f16
// CHECK-DAG: st.global.v4.b32
// CHECK-DAG: st.global.v2.b32

// AMPERE: .visible .entry msamp_step(
// AMPERE-DAG: cp.async.cg.shared.global [{{.*}}], [{{.*}}], 16;
// AMPERE-DAG: cp.async.ca.shared.global [{{.*}}], [{{.*}}], 8;
// AMPERE-DAG: cvt.rn.satfinite.f16x2.f32
// AMPERE-DAG: cvt.rn.bf16x2.f32
// AMPERE-DAG: cvt.f32.f16
// AMPERE-DAG: st.global.v4.b32
// NO-FP8-NOT: {{e4m3|e5m2|bulk|mbarrier}}

// NONE-NOT: {{^\.func|\.local|__local_depot}}
// NONE-NOT: {{(fma|mad)\.[a-z.]*f(32|64)|approx|ftz|\.full|(add|sub|mul|div)\.f(32|64)}}
msamp.layout @model {
  msamp.storage_class @c {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    master_weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>,
    momentum_buffer = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 4>>}
  msamp.storage_class @d {
    weight = #msamp.storage<bf16>,
    master_weight = #msamp.storage<f16>,
    grad = #msamp.storage<bf16>,
    momentum_buffer = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>}
  msamp.tensor "a" : tensor<4x8xf32> class(@c)
  msamp.tensor "b" : tensor<4x8xf32> class(@d)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %mw: !msamp.bundle<@model, master_weight>, %g: !msamp.bundle<@model, grad>, %b: !msamp.bundle<@model, momentum_buffer>)
    -> (!msamp.bundle<@model, weight>, !msamp.bundle<@model, master_weight>, !msamp.bundle<@model, momentum_buffer>) {
  %0:3 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@model, weight>) master_weight(%mw : !msamp.bundle<@model, master_weight>)
      grad(%g : !msamp.bundle<@model, grad>) states(%b : !msamp.bundle<@model, momentum_buffer>)
  return %0#0, %0#1, %0#2 : !msamp.bundle<@model, weight>, !msamp.bundle<@model, master_weight>, !msamp.bundle<@model, momentum_buffer>
}
