// One-tensor updates of a function become one bundled update; a function that does
// nothing else takes and returns bundles itself.
// RUN: msamp-opt %s --msamp-pack-updates --split-input-file | FileCheck %s

!e4m3 = !msamp.scaled<4x8, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>

msamp.optimizer @momentum states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %velocity: f32, %lr: f32) {
  msamp.yield %param, %velocity : f32, f32
}

// Equal formats share a class; names and order are kept.
// CHECK-LABEL: msamp.layout @step_layout
// CHECK-DAG: msamp.storage_class @[[M:class[0-9]]] {grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, velocity = #msamp.storage<bf16>, weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
// CHECK-DAG: msamp.storage_class @[[V:class[0-9]]] {grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>, weight = #msamp.storage<f32>}
// CHECK-DAG: msamp.tensor "w0" : tensor<4x8xf32> class(@[[M]])
// CHECK-DAG: msamp.tensor "b0" : tensor<8xf32> class(@[[V]])
// CHECK-DAG: msamp.tensor "tensor2" : tensor<4x8xf32> class(@[[M]])
// CHECK-LABEL: func.func @step
// CHECK-SAME: (%[[W:.*]]: !msamp.bundle<@step_layout, weight>, %[[G:.*]]: !msamp.bundle<@step_layout, grad>, %[[S:.*]]: !msamp.bundle<@step_layout, velocity>)
// CHECK-SAME: -> (!msamp.bundle<@step_layout, weight>, !msamp.bundle<@step_layout, velocity>)
// CHECK-NEXT: %[[R:.*]]:2 = msamp.wrapped_update @momentum weight(%[[W]] : {{.*}}) grad(%[[G]] : {{.*}}) states(%[[S]] : {{.*}})
// CHECK-NEXT: return %[[R]]#0, %[[R]]#1
func.func @step(%w0: !e4m3, %b0: tensor<8xf32>, %w1: !e4m3, %gw0: !e4m3, %gb0: tensor<8xf32>, %gw1: !e4m3,
                %sw0: tensor<4x8xbf16>, %sb0: tensor<8xf32>, %sw1: tensor<4x8xbf16>)
    -> (!e4m3, tensor<8xf32>, !e4m3, tensor<4x8xbf16>, tensor<8xf32>, tensor<4x8xbf16>) {
  %0:2 = msamp.wrapped_update @momentum name "w0" weight(%w0 : !e4m3) grad(%gw0 : !e4m3) states(%sw0 : tensor<4x8xbf16>)
  %1:2 = msamp.wrapped_update @momentum name "b0" weight(%b0 : tensor<8xf32>) grad(%gb0 : tensor<8xf32>) states(%sb0 : tensor<8xf32>)
  %2:2 = msamp.wrapped_update @momentum weight(%w1 : !e4m3) grad(%gw1 : !e4m3) states(%sw1 : tensor<4x8xbf16>)
  return %0#0, %1#0, %2#0, %0#1, %1#1, %2#1 : !e4m3, tensor<8xf32>, !e4m3, tensor<4x8xbf16>, tensor<8xf32>, tensor<4x8xbf16>
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// Other ops keep the tensors: then packs and unpacks stay, and so does the
// signature.
// CHECK-LABEL: func.func @between_other_ops
// CHECK-SAME: (%[[W:.*]]: tensor<4xf32>, %[[G:.*]]: tensor<4xf32>) -> tensor<4xf32>
// CHECK: %[[G2:.*]] = arith.negf %[[G]]
// CHECK: %[[BW:.*]] = msamp.pack(%[[W]]
// CHECK: %[[BG:.*]] = msamp.pack(%[[G2]]
// CHECK: %[[B:.*]] = msamp.wrapped_update @plain weight(%[[BW]] : {{.*}}) grad(%[[BG]] : {{.*}})
// CHECK: %[[T:.*]] = msamp.unpack(%[[B]]
// CHECK: return %[[T]]
func.func @between_other_ops(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %n = arith.negf %g : tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%n : tensor<4xf32>)
  return %0 : tensor<4xf32>
}

// Different wrappers do not share an update.
// CHECK-LABEL: func.func @different_wrappers
// CHECK: msamp.wrapped_update @plain weight
// CHECK-NOT: pre
// CHECK: msamp.wrapped_update @plain {{.*}} pre {
// CHECK-NOT: msamp.wrapped_update
func.func @different_wrappers(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%g : tensor<4xf32>) pre {
  ^bb0(%param: f32, %grad: f32):
    msamp.yield %param : f32
  }
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// A chain of updates is not one update: the second needs the first.
// CHECK-LABEL: func.func @chain_of_bundles
// CHECK-COUNT-2: msamp.wrapped_update @plain
func.func @chain_of_bundles(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  %0 = msamp.wrapped_update @plain weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  %1 = msamp.wrapped_update @plain weight(%0 : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %1 : !msamp.bundle<@m, weight>
}
