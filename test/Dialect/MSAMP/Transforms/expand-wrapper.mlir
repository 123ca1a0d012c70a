// A wrapped update becomes dequantize, update, amax, compute_scale and quantize; the
// weight is quantized from the master as stored; pre and post join the optimizer.
// RUN: msamp-opt %s --msamp-expand-wrapper | FileCheck %s

// The bare optimizer stays as it was.
// CHECK-LABEL: msamp.optimizer @momentum states
// CHECK: body(%[[P:.*]]: f32, %[[G:.*]]: f32, %[[V:.*]]: f32)
// CHECK-NEXT: %[[V1:.*]] = arith.addf %[[V]], %[[G]] : f32
// CHECK-NEXT: %[[P1:.*]] = arith.subf %[[P]], %[[V1]] : f32
// CHECK-NEXT: msamp.yield %[[P1]], %[[V1]] : f32, f32
msamp.optimizer @momentum states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  %v = arith.addf %velocity, %grad : f32
  %new = arith.subf %param, %v : f32
  msamp.yield %new, %v : f32, f32
}

// The optimizer of @pre_and_post: pre on (param, grad), the body on the new
// gradient, post on the parameter before and after; states come from the body.
// CHECK-LABEL: msamp.optimizer @momentum_wrapped
// CHECK: body(%[[P:.*]]: f32, %[[G:.*]]: f32, %[[V:.*]]: f32)
// CHECK-NEXT: %[[PRE:.*]] = arith.mulf %[[G]], %[[P]] : f32
// CHECK-NEXT: %[[V1:.*]] = arith.addf %[[V]], %[[PRE]] : f32
// CHECK-NEXT: %[[P1:.*]] = arith.subf %[[P]], %[[V1]] : f32
// CHECK-NEXT: %[[POST:.*]] = arith.divf %[[P]], %[[P1]] : f32
// CHECK-NEXT: msamp.yield %[[POST]], %[[V1]] : f32, f32

// CHECK-LABEL: func.func @with_master
// CHECK-SAME: (%[[W:.*]]: !msamp.bundle<@m, weight>, %[[M:.*]]: !msamp.bundle<@m, master_weight>, %[[G:.*]]: !msamp.bundle<@m, grad>, %[[V:.*]]: !msamp.bundle<@m, velocity>)
// CHECK-DAG: %[[MW:.*]] = msamp.dequantize %[[M]]
// CHECK-DAG: %[[GW:.*]] = msamp.dequantize %[[G]]
// CHECK-DAG: %[[VW:.*]] = msamp.dequantize %[[V]]
// CHECK: %[[U:.*]]:2 = msamp.update @momentum(%[[MW]], %[[GW]], %[[VW]])
// CHECK: %[[MA:.*]] = msamp.amax %[[U]]#0
// CHECK: %[[MS:.*]] = msamp.compute_scale %[[MA]], %[[M]]
// CHECK: %[[MQ:.*]] = msamp.quantize saturate %[[U]]#0, %[[MS]]
// CHECK: %[[STORED:.*]] = msamp.dequantize %[[MQ]]
// CHECK: %[[WA:.*]] = msamp.amax %[[STORED]]
// CHECK: %[[WS:.*]] = msamp.compute_scale %[[WA]], %[[W]]
// CHECK: %[[WQ:.*]] = msamp.quantize saturate %[[STORED]], %[[WS]]
// CHECK: %[[VA:.*]] = msamp.amax %[[U]]#1
// CHECK: %[[VS:.*]] = msamp.compute_scale %[[VA]], %[[V]]
// CHECK: %[[VQ:.*]] = msamp.quantize saturate %[[U]]#1, %[[VS]]
// CHECK: return %[[WQ]], %[[MQ]], %[[VQ]]
func.func @with_master(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, velocity>) {
  %0:3 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return %0#0, %0#1, %0#2 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, velocity>
}

// CHECK-LABEL: func.func @without_master
// CHECK-SAME: (%[[W:.*]]: !msamp.bundle<@m, weight>,
// CHECK: %[[P:.*]] = msamp.dequantize %[[W]]
// CHECK: %[[U:.*]]:2 = msamp.update @momentum(%[[P]],
// CHECK: %[[A:.*]] = msamp.amax %[[U]]#0
// CHECK: %[[S:.*]] = msamp.compute_scale %[[A]], %[[W]]
// CHECK: %[[Q:.*]] = msamp.quantize saturate %[[U]]#0, %[[S]] : {{.*}} -> !msamp.bundle<@m, weight>
// CHECK: return %[[Q]],
func.func @without_master(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@m, weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, velocity>
}

// CHECK-LABEL: func.func @pre_and_post
// CHECK: msamp.update @momentum_wrapped(
// CHECK-NOT: msamp.wrapped_update
func.func @pre_and_post(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, velocity>) {
  %0:2 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@m, weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  pre {
  ^bb0(%param: f32, %grad: f32):
    %scaled = arith.mulf %grad, %param : f32
    msamp.yield %scaled : f32
  } post {
  ^bb0(%before: f32, %after: f32):
    %ratio = arith.divf %before, %after : f32
    msamp.yield %ratio : f32
  }
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, velocity>
}
