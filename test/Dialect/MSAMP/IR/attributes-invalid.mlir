// Each constraint of the attributes and types has one smallest violation here.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{delayed scaling needs a history of 1 to 1024 steps, got 0}}
func.func private @scaling_delayed_without_history() attributes {a = #msamp.scaling<per_tensor, delayed>}

// -----

// expected-error @below {{delayed scaling needs a history of 1 to 1024 steps, got 1025}}
func.func private @scaling_history_too_long() attributes {a = #msamp.scaling<per_tensor, delayed, history = 1025>}

// -----

// expected-error @below {{delayed scaling needs a history of 1 to 1024 steps, got -1}}
func.func private @scaling_negative_history() attributes {a = #msamp.scaling<per_tensor, delayed, history = -1>}

// -----

// expected-error @below {{current scaling has no history, got 4}}
func.func private @scaling_current_with_history() attributes {a = #msamp.scaling<per_tensor, current, history = 4>}

// -----

// expected-error @below {{bounded scaling has no history, got 16}}
func.func private @scaling_bounded_with_history() attributes {a = #msamp.scaling<per_tensor, bounded, history = 16>}

// -----

// expected-error @below {{payload 'bf16' has the range of f32 and takes no scaling}}
func.func private @storage_C2_bf16_with_a_bound() attributes {a = #msamp.storage<bf16, scaling = <per_tensor, bounded>>}

// -----

// expected-error @below {{expected ::mlir::msamp::Granularity to be one of: per_tensor}}
// expected-error @below {{failed to parse MSAMP_ScalingAttr parameter 'granularity'}}
func.func private @scaling_unknown_granularity() attributes {a = #msamp.scaling<per_row, current>}

// -----

// expected-error @below {{payload is 'f64', expected f8E4M3FN, f8E5M2, f16, bf16 or f32}}
func.func private @storage_C1_payload_is_no_format() attributes {a = #msamp.storage<f64>}

// -----

// expected-error @below {{payload is 'f8E4M3', expected f8E4M3FN, f8E5M2, f16, bf16 or f32}}
func.func private @storage_C1_another_E4M3() attributes {a = #msamp.storage<f8E4M3, scaling = <per_tensor, current>>}

// -----

// expected-error @below {{payload 'f8E4M3FN' needs a scaling}}
func.func private @storage_C2_E4M3_without_a_scale() attributes {a = #msamp.storage<f8E4M3FN>}

// -----

// expected-error @below {{payload 'f8E5M2' needs a scaling}}
func.func private @storage_C2_E5M2_without_a_scale() attributes {a = #msamp.storage<f8E5M2>}

// -----

// expected-error @below {{payload 'bf16' has the range of f32 and takes no scaling}}
func.func private @storage_C2_bf16_with_a_scale() attributes {a = #msamp.storage<bf16, scaling = <per_tensor, current>>}

// -----

// expected-error @below {{payload 'f32' has the range of f32 and takes no scaling}}
func.func private @storage_C2_f32_with_a_scale() attributes {a = #msamp.storage<f32, scaling = <per_tensor, current>>}

// -----

// expected-error @below {{storage #msamp.storage<f16> has no scaling; use an ordinary tensor}}
func.func private @scaled_C1_storage_is_not_scaled(!msamp.scaled<4, #msamp.storage<f16>>)

// -----

// expected-error @below {{expected static shape}}
func.func private @scaled_C2_dynamic(!msamp.scaled<4x?, #msamp.storage<f16, scaling = <per_tensor, current>>>)
