// Tensors get a class and a group, classes the formats of their level, groups all
// hyper-parameters.
// RUN: msamp-opt %s --msamp-resolve-optimizers --msamp-infer-storage=default-level=O0 | FileCheck %s --check-prefixes=ALL,O0
// RUN: msamp-opt %s --msamp-resolve-optimizers --msamp-infer-storage=default-level=O1 | FileCheck %s --check-prefixes=ALL,O1
// RUN: msamp-opt %s --msamp-resolve-optimizers --msamp-infer-storage=default-level=O2 | FileCheck %s --check-prefixes=ALL,O2
// RUN: msamp-opt %s --msamp-resolve-optimizers --msamp-infer-storage=default-level=O3 | FileCheck %s --check-prefixes=ALL,O3
// RUN: msamp-opt %s --msamp-resolve-optimizers --msamp-infer-storage | FileCheck %s --check-prefixes=ALL,O3

// ALL-LABEL: msamp.layout @model

// Vectors keep weight and gradient in f32 and take the level's state formats.
// O0-DAG: msamp.storage_class @matrix level(O0) {first_moment = #msamp.storage<f32>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f32>, weight = #msamp.storage<f32>}
// O0-DAG: msamp.storage_class @vector level(O0) {first_moment = #msamp.storage<f32>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f32>, weight = #msamp.storage<f32>}

// O1-DAG: msamp.storage_class @matrix level(O1) {first_moment = #msamp.storage<f32>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, second_moment = #msamp.storage<f32>, weight = #msamp.storage<f16, scaling = <per_tensor, current>>}
// O1-DAG: msamp.storage_class @vector level(O1) {first_moment = #msamp.storage<f32>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f32>, weight = #msamp.storage<f32>}

// O2-DAG: msamp.storage_class @matrix level(O2) {first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, second_moment = #msamp.storage<f16, scaling = <per_tensor, current>>, weight = #msamp.storage<f16, scaling = <per_tensor, current>>}
// O2-DAG: msamp.storage_class @vector level(O2) {first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f16, scaling = <per_tensor, current>>, weight = #msamp.storage<f32>}

// O3-DAG: msamp.storage_class @matrix level(O3) {first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, master_weight = #msamp.storage<f16, scaling = <per_tensor, current>>, second_moment = #msamp.storage<f16, scaling = <per_tensor, current>>, weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
// O3-DAG: msamp.storage_class @vector level(O3) {first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f16, scaling = <per_tensor, current>>, weight = #msamp.storage<f32>}

// A level beside formats fills in what they leave out; "none" is kept out; and
// without a level formats must be complete but for the master.
// ALL-DAG: msamp.storage_class @mixed level(O3) {first_moment = #msamp.storage<bf16>, grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>, second_moment = #msamp.storage<f16, scaling = <per_tensor, current>>, weight = #msamp.storage<f16>}
// ALL-DAG: msamp.storage_class @explicit {first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>, grad = #msamp.storage<f32>, second_moment = #msamp.storage<f32>, weight = #msamp.storage<f32>}

// ALL-DAG: msamp.param_group @default {beta1 = 9.000000e-01 : f64, beta2 = {{.*}} : f64, eps = {{.*}} : f64, lr = 1.000000e-03 : f64, maximize = 0.000000e+00 : f64, weight_decay = 1.000000e-02 : f64}
// ALL-DAG: msamp.param_group @no_decay {beta1 = {{.*}}, lr = 1.000000e-03 : f64, maximize = 0.000000e+00 : f64, weight_decay = 0.000000e+00 : f64}

// ALL-DAG: msamp.tensor "w" : tensor<4x8xf32> class(@matrix) group(@default)
// ALL-DAG: msamp.tensor "b" : tensor<8xf32> class(@vector) group(@no_decay)
// ALL-DAG: msamp.tensor "s" : tensor<f32> class(@vector) group(@default)
// ALL-DAG: msamp.tensor "x" : tensor<8xf32> class(@explicit) group(@default)
// ALL-DAG: msamp.tensor "y" : tensor<2x2x2xf32> class(@mixed) group(@default)
msamp.layout @model {
  msamp.storage_class @mixed level(O3) {weight = #msamp.storage<f16>, master_weight = "none",
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>, first_moment = #msamp.storage<bf16>}
  msamp.storage_class @explicit {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    first_moment = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 16>>, second_moment = #msamp.storage<f32>}
  msamp.param_group @no_decay {weight_decay = 0.0 : f64}
  msamp.tensor "w" : tensor<4x8xf32>
  msamp.tensor "b" : tensor<8xf32> group(@no_decay)
  msamp.tensor "s" : tensor<f32>
  msamp.tensor "x" : tensor<8xf32> class(@explicit)
  msamp.tensor "y" : tensor<2x2x2xf32> class(@mixed)
}
func.func @step(%w: !msamp.bundle<@model, weight>, %m: !msamp.bundle<@model, master_weight>, %g: !msamp.bundle<@model, grad>,
                %f: !msamp.bundle<@model, first_moment>, %s: !msamp.bundle<@model, second_moment>) -> !msamp.bundle<@model, weight> {
  %0:4 = msamp.wrapped_update @adamw weight(%w : !msamp.bundle<@model, weight>) master_weight(%m : !msamp.bundle<@model, master_weight>)
      grad(%g : !msamp.bundle<@model, grad>) states(%f, %s : !msamp.bundle<@model, first_moment>, !msamp.bundle<@model, second_moment>)
  return %0#0 : !msamp.bundle<@model, weight>
}
