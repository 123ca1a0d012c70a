// A lowered step becomes a plan that the runtime's reader shows again: formats, groups,
// tensors in order, kernels, as text, JSON and MLIR; the same input gives the same
// bytes.
// RUN: msamp-opt %s --msamp-step-to-cpu --msamp-emit-step-plan=output=%t.msplan -o /dev/null
// RUN: msamp-opt %s --msamp-step-to-cpu --msamp-emit-step-plan=output=%t.again.msplan -o /dev/null
// RUN: cmp %t.msplan %t.again.msplan
// RUN: msamp-plan-dump %t.msplan | FileCheck %s
// RUN: msamp-plan-dump %t.msplan --json | %python -c "import json, sys; json.dump(json.load(sys.stdin), sys.stdout, sort_keys=True, indent=1)" | FileCheck %s --check-prefix=JSON
// RUN: msamp-plan-dump %t.msplan --mlir | FileCheck %s --check-prefix=MLIR
// RUN: msamp-plan-dump %t.msplan --mlir | msamp-opt | FileCheck %s --check-prefix=MLIR

// CHECK: step plan version 8, {{[0-9]+}} bytes, by msamp
// CHECK-NEXT: digest {{[0-9a-f]{32}$}}
// CHECK-NEXT: optimizer sgd, schedule two_phase, 3 tensors, 41 parameters

// 5 bytes: E4M3 weight, f16 master, E5M2 gradient, E4M3 state; the weight is written only.
// CHECK: class matrix: 1 tensors, 5 bytes a parameter kept; a step reads 4 twice and writes 4
// CHECK-NEXT: weight F8_E4M3, scaled per tensor, current
// CHECK-NEXT: master_weight F16, scaled per tensor, current
// CHECK-NEXT: grad F8_E5M2, scaled per tensor, current
// CHECK-NEXT: momentum_buffer F8_E4M3, scaled per tensor, delayed by 4
// Nothing is scaled by its own values: one reading will do.
// CHECK: class vector: 2 tensors, 10 bytes a parameter kept; a step reads 10 and writes 6
// CHECK-NEXT: weight F32
// CHECK-NEXT: grad F32
// CHECK-NEXT: momentum_buffer BF16

// CHECK: group slow: lr=0.001 momentum=0.9 dampening=0 weight_decay=0 nesterov=0 maximize=0
// CHECK: group default: lr=0.001 momentum=0 dampening=0 weight_decay=0 nesterov=0 maximize=0

// CHECK: tensors:
// CHECK-NEXT: b [8] class vector group slow
// CHECK-NEXT: w [4,8] class matrix group default
// CHECK-NEXT: s [] class vector group default

// CHECK: native code for x86_64-unknown-linux-gnu, {{[0-9]+}} bytes:
// CHECK-NEXT: sgd_scalars
// CHECK-NEXT: vector_reduce_x86_64{{$}}
// CHECK-NEXT: vector_reduce_x86_64_v3
// CHECK-NEXT: vector_reduce_x86_64_v4
// CHECK-NEXT: vector_store_x86_64{{$}}
// CHECK-NEXT: vector_store_x86_64_v3
// CHECK-NEXT: vector_store_x86_64_v4
// CHECK-NEXT: matrix_reduce_x86_64{{$}}
// CHECK: matrix_store_x86_64_v4

// JSON: "matrix": {
// JSON: "bytes_kept": 5,
// JSON: "grad": {
// JSON-NEXT: "dtype": "F8_E5M2",
// JSON-NEXT: "history": 0,
// JSON-NEXT: "overflow": "saturate",
// JSON-NEXT: "scaling": "current"
// JSON: "momentum_buffer": {
// JSON-NEXT: "dtype": "F8_E4M3",
// JSON-NEXT: "history": 4,
// JSON-NEXT: "overflow": "saturate",
// JSON-NEXT: "scaling": "delayed"
// JSON: "vector": {
// JSON-NOT: "master_weight"
// JSON: "momentum_buffer": {
// JSON-NEXT: "dtype": "BF16",
// JSON-NEXT: "history": 0,
// JSON-NEXT: "overflow": "ieee",
// JSON-NEXT: "scaling": "none"
// JSON: "digest": "{{[0-9a-f]+}}"
// JSON: "slow": {
// JSON: "momentum": 0.9,
// JSON: "launches": [
// JSON-NEXT: {
// JSON-NEXT: "backend": "cpu",
// JSON: "optimizer": "sgd",
// JSON: "schedule": "two_phase",
// JSON: "target": "x86_64-unknown-linux-gnu",
// JSON: "class": "vector",
// JSON-NEXT: "group": "slow",
// JSON-NEXT: "name": "b",
// JSON: "name": "w",
// JSON-NEXT: "shape": [
// JSON-NEXT: 4,
// JSON-NEXT: 8
// JSON: "name": "s",
// JSON-NEXT: "shape": []
// JSON: "version": 8

// MLIR: msamp.optimizer @sgd states(momentum_buffer : signed)
// MLIR: msamp.launch @step layout(@model) optimizer(@sgd) schedule(two_phase) {
// MLIR: msamp.kernel @vector_reduce class(@vector) phase(reduce) {
// MLIR: msamp.kernel @matrix_store class(@matrix) phase(store) {
// MLIR-NOT: msamp.tensor

msamp.layout @model {
  msamp.storage_class @matrix {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    master_weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>,
    momentum_buffer = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 4>>}
  msamp.storage_class @vector {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, momentum_buffer = #msamp.storage<bf16>}
  msamp.param_group @slow {momentum = 0.9 : f64}
  msamp.param_group @default
  msamp.tensor "b" : tensor<8xf32> group(@slow)
  msamp.tensor "w" : tensor<4x8xf32>
  msamp.tensor "s" : tensor<f32>
}
func.func @step(%w: !msamp.bundle<@model, weight>, %m: !msamp.bundle<@model, master_weight>, %g: !msamp.bundle<@model, grad>, %b: !msamp.bundle<@model, momentum_buffer>)
    -> (!msamp.bundle<@model, weight>, !msamp.bundle<@model, master_weight>, !msamp.bundle<@model, momentum_buffer>) {
  %0:3 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@model, weight>) master_weight(%m : !msamp.bundle<@model, master_weight>)
      grad(%g : !msamp.bundle<@model, grad>) states(%b : !msamp.bundle<@model, momentum_buffer>)
  return %0#0, %0#1, %0#2 : !msamp.bundle<@model, weight>, !msamp.bundle<@model, master_weight>, !msamp.bundle<@model, momentum_buffer>
}
