// The generic form, which crash reports and bisecting tools print, parses too,
// enums included.
// RUN: msamp-opt %s --mlir-print-op-generic | msamp-opt | FileCheck %s

// CHECK: msamp.quantize saturate
func.func @overflow(%x: tensor<4xf32>, %s: tensor<f32>) -> !msamp.scaled<4, #msamp.storage<f16, scaling = <per_tensor, current>>> {
  %0 = msamp.quantize saturate %x, %s : tensor<4xf32>, tensor<f32> -> !msamp.scaled<4, #msamp.storage<f16, scaling = <per_tensor, current>>>
  return %0 : !msamp.scaled<4, #msamp.storage<f16, scaling = <per_tensor, current>>>
}

// CHECK: msamp.storage_class @matrix level(O3)
msamp.layout @model {
  msamp.storage_class @matrix level(O3)
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// CHECK: msamp.launch @step layout(@model) optimizer(@plain) schedule(two_phase)
// CHECK: msamp.kernel @matrix class(@matrix) phase(reduce)
// CHECK: msamp.uniform scale_inv "grad" : f32
// CHECK: msamp.reduce max %{{.*}} scope(all) as amax of "grad" : i32
msamp.launch @step layout(@model) optimizer(@plain) schedule(two_phase) {
  msamp.kernel @matrix class(@matrix) phase(reduce) {
    %0 = msamp.uniform scale_inv "grad" : f32
    %1 = arith.bitcast %0 : f32 to i32
    %2 = msamp.reduce max %1 scope(all) as amax of "grad" : i32
  }
}
