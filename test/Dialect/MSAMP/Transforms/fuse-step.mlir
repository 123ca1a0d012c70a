// A function of bundle ops becomes one launch with a kernel for each class in use: in
// @matrix with a master and a delayed scale, in @vector with neither.
// RUN: msamp-opt %s --msamp-expand-wrapper --msamp-fuse-step | FileCheck %s

msamp.optimizer @momentum states(velocity) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %velocity: f32, %lr: f32) {
  %v = arith.addf %velocity, %grad : f32
  %update = arith.mulf %lr, %v : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new, %v : f32, f32
}

msamp.layout @m {
  msamp.storage_class @matrix {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>,
    master_weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>,
    velocity = #msamp.storage<f8E4M3FN, scaling = <per_tensor, delayed, history = 4>>}
  msamp.storage_class @vector {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, velocity = #msamp.storage<bf16>}
  msamp.storage_class @unused {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, velocity = #msamp.storage<f32>}
  msamp.tensor "w" : tensor<4x8xf32> class(@matrix)
  msamp.tensor "b" : tensor<8xf32> class(@vector)
}

// CHECK-NOT: func.func @step
// CHECK-LABEL: msamp.launch @step layout(@m) optimizer(@momentum) {
// CHECK-LABEL: msamp.kernel @matrix class(@matrix) {

// Operands, scaled; the gradient says its amax.
// CHECK: %[[M:.*]] = msamp.load "master_weight" : f16
// CHECK: %[[MD:.*]] = msamp.decode %[[M]] : f16 -> f32
// CHECK: %[[MI:.*]] = msamp.uniform scale_inv "master_weight"
// CHECK: %[[P:.*]] = arith.mulf %[[MD]], %[[MI]] : f32
// CHECK: msamp.load "grad" : f8E5M2
// CHECK: %[[GI:.*]] = msamp.uniform scale_inv "grad"
// CHECK: %[[G:.*]] = arith.mulf %{{.*}}, %[[GI]] : f32
// CHECK: msamp.reduce max %{{.*}} scope(all) as amax of "grad" : i32
// CHECK: msamp.load "velocity" : f8E4M3FN
// CHECK: %[[V:.*]] = arith.mulf
// CHECK-NOT: msamp.load "weight"

// The body.
// CHECK: %[[LR:.*]] = msamp.uniform scalar "0"
// CHECK: %[[V1:.*]] = arith.addf %[[V]], %[[G]] : f32
// CHECK: %[[U:.*]] = arith.mulf %[[LR]], %[[V1]] : f32
// CHECK: %[[P1:.*]] = arith.subf %[[P]], %[[U]] : f32

// The master, from its own amax.
// CHECK: %[[PB:.*]] = arith.bitcast %[[P1]] : f32 to i32
// CHECK: %[[MASK:.*]] = arith.constant 2147483647 : i32
// CHECK: %[[MAG:.*]] = arith.andi %[[PB]], %[[MASK]] : i32
// CHECK: %[[MAB:.*]] = msamp.reduce max %[[MAG]] scope(tensor) as amax of "master_weight" : i32
// CHECK: %[[MA:.*]] = arith.bitcast %[[MAB]] : i32 to f32
// CHECK: %[[MO:.*]] = msamp.uniform old_scale "master_weight"
// CHECK: %[[MS:.*]] = msamp.compute_scale %[[MA]], %[[MO]] for f16
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as scale of "master_weight"
// CHECK: %[[MX:.*]] = arith.mulf %[[P1]], %[[MS]] : f32
// CHECK: %[[MQ:.*]] = msamp.encode saturate %[[MX]] : f32 -> f16
// CHECK: msamp.store %[[MQ]] to "master_weight" : f16
// Current scaling never saturates, so only what is flushed is counted.
// CHECK-NOT: as saturated of "master_weight"
// CHECK: as flushed of "master_weight"

// The weight, from the master as stored; its amax is the stored form of the master's.
// CHECK: %[[MQD:.*]] = msamp.decode %[[MQ]] : f16 -> f32
// CHECK: %[[STORED:.*]] = arith.mulf %[[MQD]],
// CHECK: %[[AX:.*]] = arith.mulf %[[MA]], %[[MS]] : f32
// CHECK: %[[AQ:.*]] = msamp.encode saturate %[[AX]] : f32 -> f16
// CHECK: %[[AD:.*]] = msamp.decode %[[AQ]] : f16 -> f32
// CHECK: %[[WA:.*]] = arith.mulf %[[AD]],
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "weight"
// CHECK: %[[WS:.*]] = msamp.compute_scale %[[WA]], %{{.*}} for f8E4M3FN
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as scale of "weight"
// CHECK: %[[WX:.*]] = arith.mulf %[[STORED]], %[[WS]] : f32
// CHECK: %[[WQ:.*]] = msamp.encode saturate %[[WX]] : f32 -> f8E4M3FN
// CHECK: msamp.store %[[WQ]] to "weight" : f8E4M3FN
// CHECK: as flushed of "weight"

// The velocity, from its history once that is full, else from its own amax.
// CHECK: msamp.reduce max %{{.*}} scope(tensor) as amax of "velocity"
// CHECK: %[[VA:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK: %[[H:.*]] = msamp.uniform history "velocity"
// CHECK: %[[FULL:.*]] = arith.cmpf oge, %[[H]], %{{.*}} : f32
// CHECK: %[[VSA:.*]] = arith.select %[[FULL]], %[[H]], %[[VA]] : f32
// CHECK: %[[VS:.*]] = msamp.compute_scale %[[VSA]], %{{.*}} for f8E4M3FN
// CHECK: %[[VX:.*]] = arith.mulf %[[V1]], %[[VS]] : f32
// CHECK: %[[VQ:.*]] = msamp.encode saturate %[[VX]] : f32 -> f8E4M3FN
// CHECK: msamp.store %[[VQ]] to "velocity" : f8E4M3FN
// CHECK: as flushed of "velocity"
// CHECK: as saturated of "velocity"

// All payloads in the order of roles.
// CHECK: %[[HASH:.*]] = msamp.hash %[[WQ]], %[[MQ]], %[[VQ]] : f8E4M3FN, f16, f8E4M3FN
// CHECK: msamp.reduce sum %[[HASH]] scope(tensor) as fingerprint : i64

// Without a master the weight is the parameter; a plain f32 gradient still loses
// the loss scale; nothing that is not scaled has a scale, or counts losses.
// CHECK-LABEL: msamp.kernel @vector class(@vector) {
// CHECK-NOT: master_weight
// CHECK: %[[P:.*]] = msamp.load "weight" : f32
// CHECK: %[[GL:.*]] = msamp.load "grad" : f32
// CHECK: %[[GI:.*]] = msamp.uniform scale_inv "grad"
// CHECK: %[[G:.*]] = arith.mulf %[[GL]], %[[GI]] : f32
// CHECK: msamp.reduce max %{{.*}} scope(all) as amax of "grad"
// CHECK: %[[V:.*]] = msamp.decode %{{.*}} : bf16 -> f32
// CHECK: %[[V1:.*]] = arith.addf %[[V]], %[[G]] : f32
// CHECK: %[[P1:.*]] = arith.subf %[[P]],
// CHECK-NOT: msamp.compute_scale
// CHECK-NOT: as flushed
// CHECK: %[[WQ:.*]] = msamp.encode ieee %[[P1]] : f32 -> f32
// CHECK: msamp.store %[[WQ]] to "weight" : f32
// CHECK: %[[VQ:.*]] = msamp.encode ieee %[[V1]] : f32 -> bf16
// CHECK: msamp.store %[[VQ]] to "velocity" : bf16
// CHECK: msamp.hash %[[WQ]], %[[VQ]] : f32, bf16
// CHECK-NOT: msamp.kernel
func.func @step(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>, %v: !msamp.bundle<@m, velocity>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, velocity>) {
  %0:3 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%v : !msamp.bundle<@m, velocity>)
  return %0#0, %0#1, %0#2 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, velocity>
}
