// Each constraint of layouts, classes, groups and tensors has one smallest
// violation here.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

msamp.layout @layout_C1_holds_a_function {
  // expected-error @below {{'func.func' inside a layout, expected storage_class, param_group or tensor}}
  func.func private @f()
}

// -----

msamp.layout @storage_class_C1_format_is_a_word {
  // expected-error @below {{format of role "weight" is "f32", expected #msamp.storage or "none"}}
  msamp.storage_class @c {weight = "f32"}
}

// -----

msamp.layout @storage_class_C1_format_is_a_type {
  // expected-error @below {{format of role "grad" is f32, expected #msamp.storage or "none"}}
  msamp.storage_class @c {grad = f32}
}

// -----

msamp.layout @storage_class_C2_no_weight {
  // expected-error @below {{role "weight" cannot be "none"; only master_weight can}}
  msamp.storage_class @c {weight = "none"}
}

// -----

msamp.layout @storage_class_C2_no_state {
  // expected-error @below {{role "first_moment" cannot be "none"; only master_weight can}}
  msamp.storage_class @c {first_moment = "none", master_weight = "none"}
}

// -----

// expected-error @below {{expects parent op 'msamp.layout'}}
msamp.storage_class @outside_of_a_layout

// -----

msamp.layout @param_group_C1_value_is_f32 {
  // expected-error @below {{hyper-parameter "lr" is 1.000000e-03 : f32, expected an f64}}
  msamp.param_group @g {lr = 1.0e-3 : f32}
}

// -----

msamp.layout @param_group_C1_value_is_an_integer {
  // expected-error @below {{hyper-parameter "lr" is 1 : i64, expected an f64}}
  msamp.param_group @g {lr = 1}
}

// -----

msamp.layout @tensor_C1_type_is_f16 {
  // expected-error @below {{"a" is 'tensor<4xf16>', expected a static f32 tensor}}
  msamp.tensor "a" : tensor<4xf16>
}

// -----

msamp.layout @tensor_C1_type_is_dynamic {
  // expected-error @below {{"a" is 'tensor<?xf32>', expected a static f32 tensor}}
  msamp.tensor "a" : tensor<?xf32>
}

// -----

msamp.layout @tensor_C1_type_is_no_tensor {
  // expected-error @below {{"a" is 'f32', expected a static f32 tensor}}
  msamp.tensor "a" : f32
}

// -----

msamp.layout @tensor_C1_too_many_elements {
  // expected-error @below {{"a" is 'tensor<4294967296x2147483648xf32>', of 2^63 elements or more}}
  msamp.tensor "a" : tensor<4294967296x2147483648xf32>
}

// -----

msamp.layout @tensor_C2_class_is_not_declared {
  // expected-error @below {{"a" is of storage class @missing, which the layout does not declare}}
  msamp.tensor "a" : tensor<4xf32> class(@missing)
}

// -----

msamp.layout @tensor_C2_class_is_a_group {
  msamp.param_group @g
  // expected-error @below {{"a" is of storage class @g, which the layout does not declare}}
  msamp.tensor "a" : tensor<4xf32> class(@g)
}

// -----

msamp.layout @tensor_C2_group_is_not_declared {
  // expected-error @below {{"a" is in group @missing, which the layout does not declare}}
  msamp.tensor "a" : tensor<4xf32> group(@missing)
}

// -----

msamp.layout @tensor_C2_group_is_a_class {
  msamp.storage_class @c
  // expected-error @below {{"a" is in group @c, which the layout does not declare}}
  msamp.tensor "a" : tensor<4xf32> group(@c)
}

// -----

msamp.layout @tensor_C3_empty_name {
  // expected-error @below {{has an empty name}}
  msamp.tensor "" : tensor<4xf32>
}

// -----

msamp.layout @tensor_C3_name_is_taken {
  // expected-note @below {{by this tensor}}
  msamp.tensor "a" : tensor<4xf32>
  // expected-error @below {{name "a" is taken}}
  msamp.tensor "a" : tensor<8xf32>
}

// -----

msamp.layout @storage_class_C3_delayed {
  // expected-error @below {{format of role "grad" is #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>; a gradient comes with its scale, so that it can only be scaled by its current amax}}
  msamp.storage_class @c {grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>}
}

// -----

msamp.layout @storage_class_C3_bounded {
  // expected-error @below {{a gradient comes with its scale, so that it can only be scaled by its current amax}}
  msamp.storage_class @c {grad = #msamp.storage<f8E5M2, scaling = <per_tensor, bounded>>}
}
