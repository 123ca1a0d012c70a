// Each constraint of the quantization ops has one smallest violation here.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

!e4m3 = !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
func.func @quantize_C1_shapes_differ(%x: tensor<8xf32>, %s: tensor<f32>) {
  // expected-error @below {{'input' is 'tensor<8xf32>' but 'result' has another shape: '!msamp.scaled<4,}}
  %0 = msamp.quantize saturate %x, %s : tensor<8xf32>, tensor<f32> -> !e4m3
  return
}

// -----

func.func @quantize_C2_input_is_not_wide(%x: !msamp.bundle<@m, weight>, %s: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'input' holds "weight", expected wide}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, weight>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return
}

// -----

func.func @quantize_C2_scale_is_not_scalar(%x: !msamp.bundle<@m, wide>, %s: !msamp.bundle<@m, wide>) {
  // expected-error @below {{'scale' holds "wide", expected scalar}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, wide> -> !msamp.bundle<@m, weight>
  return
}

// -----

func.func @quantize_C2_result_is_not_a_role(%x: !msamp.bundle<@m, wide>, %s: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'result' holds "wide", expected role}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @quantize_C2_scale_over_another_layout(%x: !msamp.bundle<@m, wide>, %s: !msamp.bundle<@n, scalar>) {
  // expected-error @below {{'scale' is over @n, expected @m}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@n, scalar> -> !msamp.bundle<@m, weight>
  return
}

// -----

func.func @quantize_C2_result_over_another_layout(%x: !msamp.bundle<@m, wide>, %s: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'result' is over @n, expected @m}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@n, weight>
  return
}

// -----

func.func @quantize_C3_scale_is_a_tensor(%x: !msamp.bundle<@m, wide>, %s: tensor<f32>) {
  // expected-error @below {{'scale' is 'tensor<f32>', expected a bundle over @m}}
  %0 = msamp.quantize saturate %x, %s : !msamp.bundle<@m, wide>, tensor<f32> -> !msamp.bundle<@m, weight>
  return
}

// -----

!e4m3 = !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
func.func @quantize_C3_only_scale_is_a_bundle(%x: tensor<4xf32>, %s: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'scale' is a bundle but 'input' is 'tensor<4xf32>'}}
  %0 = msamp.quantize saturate %x, %s : tensor<4xf32>, !msamp.bundle<@m, scalar> -> !e4m3
  return
}

// -----

func.func @quantize_C3_only_result_is_a_bundle(%x: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @below {{mixes bundles and tensors: 'input' is 'tensor<4xf32>', 'result' is '!msamp.bundle<@m, weight>'}}
  %0 = msamp.quantize saturate %x, %s : tensor<4xf32>, tensor<f32> -> !msamp.bundle<@m, weight>
  return
}

// -----

func.func @quantize_C4_bundle_with_ieee(%x: !msamp.bundle<@m, wide>, %s: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{has overflow 'ieee', but scaled formats of a bundle saturate}}
  %0 = msamp.quantize ieee %x, %s : !msamp.bundle<@m, wide>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, weight>
  return
}

// -----

!e4m3 = !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
func.func @dequantize_C1_shapes_differ(%q: !e4m3) {
  // expected-error @below {{but 'result' has another shape: 'tensor<2x2xf32>'}}
  %0 = msamp.dequantize %q : !e4m3 -> tensor<2x2xf32>
  return
}

// -----

func.func @dequantize_C2_input_is_not_a_role(%q: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'input' holds "scalar", expected role}}
  %0 = msamp.dequantize %q : !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @dequantize_C2_result_is_not_wide(%q: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'result' holds "grad", expected wide}}
  %0 = msamp.dequantize %q : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, grad>
  return
}

// -----

func.func @dequantize_C2_layouts_differ(%q: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'result' is over @n, expected @m}}
  %0 = msamp.dequantize %q : !msamp.bundle<@m, weight> -> !msamp.bundle<@n, wide>
  return
}

// -----

func.func @amax_C1_result_has_a_rank(%x: tensor<4xf32>) {
  // expected-error @below {{result #0 must be 0D tensor of 32-bit float values or bundle, but got 'tensor<4xf32>'}}
  %0 = msamp.amax %x : tensor<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @amax_C1_result_is_a_bundle(%x: tensor<4xf32>) {
  // expected-error @below {{'result' is '!msamp.bundle<@m, scalar>' but 'input' is 'tensor<4xf32>'}}
  %0 = msamp.amax %x : tensor<4xf32> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @amax_C2_input_is_not_wide(%x: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'input' holds "weight", expected wide}}
  %0 = msamp.amax %x : !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @amax_C2_result_is_not_scalar(%x: !msamp.bundle<@m, wide>) {
  // expected-error @below {{'result' holds "wide", expected scalar}}
  %0 = msamp.amax %x : !msamp.bundle<@m, wide> -> !msamp.bundle<@m, wide>
  return
}

// -----

func.func @amax_C2_layouts_differ(%x: !msamp.bundle<@m, wide>) {
  // expected-error @below {{'result' is over @n, expected @m}}
  %0 = msamp.amax %x : !msamp.bundle<@m, wide> -> !msamp.bundle<@n, scalar>
  return
}

// -----

func.func @compute_scale_C1_types_differ(%a: f32, %o: tensor<f32>) {
  // expected-error @below {{'amax', 'previous' and 'result' are 'f32', 'tensor<f32>' and 'f32', expected one type}}
  %0 = msamp.compute_scale %a, %o for f8E4M3FN : f32, tensor<f32> -> f32
  return
}

// -----

func.func @compute_scale_C1_amax_is_not_scalar(%a: !msamp.bundle<@m, wide>, %o: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'amax' holds "wide", expected scalar}}
  %0 = msamp.compute_scale %a, %o : !msamp.bundle<@m, wide>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @compute_scale_C1_previous_is_not_a_role(%a: !msamp.bundle<@m, scalar>, %o: !msamp.bundle<@m, scalar>) {
  // expected-error @below {{'previous' holds "scalar", expected role}}
  %0 = msamp.compute_scale %a, %o : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, scalar> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @compute_scale_C1_previous_is_not_a_bundle(%a: !msamp.bundle<@m, scalar>, %o: f32) {
  // expected-error @below {{'previous' is 'f32', expected a bundle over @m}}
  %0 = msamp.compute_scale %a, %o : !msamp.bundle<@m, scalar>, f32 -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @compute_scale_C1_result_is_not_scalar(%a: !msamp.bundle<@m, scalar>, %o: !msamp.bundle<@m, weight>) {
  // expected-error @below {{'result' holds "weight", expected scalar}}
  %0 = msamp.compute_scale %a, %o : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, weight>
  return
}

// -----

func.func @compute_scale_C2_payload_is_missing(%a: f32, %o: f32) {
  // expected-error @below {{needs a payload: for f8E4M3FN, f8E5M2 or f16}}
  %0 = msamp.compute_scale %a, %o : f32, f32 -> f32
  return
}

// -----

func.func @compute_scale_C2_payload_has_the_range_of_f32(%a: f32, %o: f32) {
  // expected-error @below {{payload is 'bf16', expected f8E4M3FN, f8E5M2 or f16}}
  %0 = msamp.compute_scale %a, %o for bf16 : f32, f32 -> f32
  return
}

// -----

func.func @compute_scale_C2_payload_for_bundles(%a: !msamp.bundle<@m, scalar>, %o: !msamp.bundle<@m, weight>) {
  // expected-error @below {{bundles take the format of 'previous', but a payload 'f8E4M3FN' is given}}
  %0 = msamp.compute_scale %a, %o for f8E4M3FN : !msamp.bundle<@m, scalar>, !msamp.bundle<@m, weight> -> !msamp.bundle<@m, scalar>
  return
}

// -----

func.func @update_amax_history_C1_types_differ(%h: tensor<4xf32>, %a: tensor<f32>) {
  // expected-error @below {{failed to verify that all of {history, result} have same type}}
  %0 = "msamp.update_amax_history"(%h, %a) : (tensor<4xf32>, tensor<f32>) -> tensor<5xf32>
  return
}

// -----

func.func @update_amax_history_C1_no_entry(%h: tensor<0xf32>, %a: tensor<f32>) {
  // expected-error @below {{'history' is 'tensor<0xf32>', expected at least one static entry}}
  %0 = msamp.update_amax_history %h, %a : tensor<0xf32>, tensor<f32>
  return
}

// -----

func.func @update_amax_history_C1_dynamic(%h: tensor<?xf32>, %a: tensor<f32>) {
  // expected-error @below {{'history' is 'tensor<?xf32>', expected at least one static entry}}
  %0 = msamp.update_amax_history %h, %a : tensor<?xf32>, tensor<f32>
  return
}
