// PTX of a step in f32 throughout: whole vectors in and out, no casts between formats of
// elements, and arithmetic that is rounded as the IR says, one op at a time.
// RUN: msamp-compile %s --target=cuda --arch=sm_90a,sm_80 -o %t.msplan
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_90a > %t.90a
// RUN: msamp-plan-dump %t.msplan --ptx --arch=sm_80 > %t.80
// RUN: FileCheck %s --check-prefixes=CHECK,HOPPER < %t.90a
// RUN: FileCheck %s --check-prefixes=CHECK,AMPERE < %t.80
// RUN: FileCheck %s --check-prefix=NONE < %t.90a
// RUN: FileCheck %s --check-prefix=NONE < %t.80

// HOPPER: .target sm_90a
// AMPERE: .target sm_80{{$}}
// CHECK: .visible .entry msamp_step(
// CHECK: .reqntid
// HOPPER: cp.async.bulk.shared::cluster.global
// AMPERE: cp.async.cg.shared.global [{{.*}}], [{{.*}}], 16;
// CHECK-DAG: ld.shared.v4.b32
// CHECK-DAG: mul.rn.f32
// CHECK-DAG: st.global.v4.b32

// One function, nothing in local memory; no contraction, no approximation, no
// flushing of subnormals; no narrow format, but for f16 gradients that a caller may bind.
// NONE-NOT: {{^\.func|\.local|__local_depot}}
// NONE-NOT: {{(fma|mad)\.[a-z.]*f(32|64)|approx|ftz|\.full|(add|sub|mul|div)\.f(32|64)}}
// NONE-NOT: {{cvt\.rn[a-z0-9.]*(f16|bf16|e4m3|e5m2)}}
msamp.layout @model {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, momentum_buffer = #msamp.storage<f32>}
  msamp.tensor "a" : tensor<4x8xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %g: !msamp.bundle<@model, grad>, %b: !msamp.bundle<@model, momentum_buffer>)
    -> (!msamp.bundle<@model, weight>, !msamp.bundle<@model, momentum_buffer>) {
  %0:2 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@model, weight>) grad(%g : !msamp.bundle<@model, grad>)
      states(%b : !msamp.bundle<@model, momentum_buffer>)
  return %0#0, %0#1 : !msamp.bundle<@model, weight>, !msamp.bundle<@model, momentum_buffer>
}
