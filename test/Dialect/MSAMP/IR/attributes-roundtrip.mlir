// Storage, scaling, hyper and state attributes and both types keep all their
// parameters through text.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: func.func private @attributes
// CHECK-SAME: bf16 = #msamp.storage<bf16>
// CHECK-SAME: bounded = #msamp.scaling<per_tensor, bounded>
// CHECK-SAME: bounded_e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>
// CHECK-SAME: current = #msamp.scaling<per_tensor, current>
// CHECK-SAME: delayed = #msamp.scaling<per_tensor, delayed, history = 1024>
// CHECK-SAME: e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>
// CHECK-SAME: e5m2 = #msamp.storage<f8E5M2, scaling = <per_tensor, delayed, history = 16>>
// CHECK-SAME: f16 = #msamp.storage<f16>
// CHECK-SAME: f32 = #msamp.storage<f32>
// CHECK-SAME: hyper = #msamp.hyper<"lr", 1.000000e-03 : f64, 0.000000e+00 : f64, 0x7FF0000000000000 : f64>
// CHECK-SAME: scaled_f16 = #msamp.storage<f16, scaling = <per_tensor, current>>
// CHECK-SAME: state = #msamp.state<"second_moment", nonnegative>
func.func private @attributes() attributes {
  bf16 = #msamp.storage<bf16>,
  bounded = #msamp.scaling<per_tensor, bounded>,
  bounded_e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>,
  current = #msamp.scaling<per_tensor, current>,
  delayed = #msamp.scaling<per_tensor, delayed, history = 1024>,
  e4m3 = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
  e5m2 = #msamp.storage<f8E5M2, scaling = <per_tensor, delayed, history = 16>>,
  f16 = #msamp.storage<f16>,
  f32 = #msamp.storage<f32>,
  hyper = #msamp.hyper<"lr", 1.0e-3 : f64, 0.0 : f64, 0x7FF0000000000000 : f64>,
  scaled_f16 = #msamp.storage<f16, scaling = <per_tensor, current>>,
  state = #msamp.state<"second_moment", nonnegative>}

// CHECK-LABEL: func.func private @types
// CHECK-SAME: !msamp.scaled<768x768, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
// CHECK-SAME: !msamp.scaled<0, #msamp.storage<f16, scaling = <per_tensor, current>>>
// CHECK-SAME: !msamp.scaled<#msamp.storage<f8E5M2, scaling = <per_tensor, delayed, history = 4>>>
// CHECK-SAME: !msamp.bundle<@model, first_moment>
// CHECK-SAME: !msamp.bundle<@model, wide>
// CHECK-SAME: !msamp.bundle<@"a model", "first moment">
func.func private @types(
    !msamp.scaled<768x768, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>,
    !msamp.scaled<0, #msamp.storage<f16, scaling = <per_tensor, current>>>,
    !msamp.scaled<#msamp.storage<f8E5M2, scaling = <per_tensor, delayed, history = 4>>>,
    !msamp.bundle<@model, first_moment>, !msamp.bundle<@model, wide>,
    !msamp.bundle<@"a model", "first moment">)
