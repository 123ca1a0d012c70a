// Layouts print as text that parses to the same table, in order.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

// CHECK-LABEL: msamp.layout @model {
msamp.layout @model {
  // CHECK-NEXT: msamp.storage_class @matrix level(O3)
  msamp.storage_class @matrix level(O3)
  // CHECK-NEXT: msamp.storage_class @level_and_formats level(O1) {first_moment = #msamp.storage<bf16>, master_weight = "none"}
  msamp.storage_class @level_and_formats level(O1) {first_moment = #msamp.storage<bf16>, master_weight = "none"}
  // CHECK-NEXT: msamp.storage_class @formats {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>}
  msamp.storage_class @formats {weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>}
  // CHECK-NEXT: msamp.param_group @default{{$}}
  msamp.param_group @default
  // CHECK-NEXT: msamp.param_group @decay {lr = 1.000000e-03 : f64, weight_decay = 1.000000e-01 : f64}
  msamp.param_group @decay {lr = 1.0e-3 : f64, weight_decay = 1.0e-1 : f64}
  // CHECK-NEXT: msamp.tensor "wte" : tensor<50257x768xf32> class(@matrix) group(@decay)
  msamp.tensor "wte" : tensor<50257x768xf32> class(@matrix) group(@decay)
  // CHECK-NEXT: msamp.tensor "matrix" : tensor<f32>{{$}}
  msamp.tensor "matrix" : tensor<f32>
  // CHECK-NEXT: msamp.tensor "none \22quoted\22" : tensor<0x4xf32> class(@formats)
  msamp.tensor "none \"quoted\"" : tensor<0x4xf32> class(@formats)
  // CHECK-NEXT: msamp.tensor "a" : tensor<2xf32> group(@default)
  msamp.tensor "a" : tensor<2xf32> group(@default)
  // CHECK-NEXT: }
}

// CHECK-LABEL: msamp.layout @empty {
// CHECK-NEXT: }
msamp.layout @empty {
}
