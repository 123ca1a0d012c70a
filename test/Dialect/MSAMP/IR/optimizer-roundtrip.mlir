// Optimizers, updates, packs and powi print as text that parses to the same ops.
// RUN: msamp-opt %s | msamp-opt | FileCheck %s
// RUN: msamp-opt %s --verify-roundtrip -o /dev/null

// Defaults in full precision, infinite bounds, states with and without a range.
// CHECK-LABEL: msamp.optimizer @momentum
// CHECK-SAME: states(velocity : signed, "second moment" : nonnegative)
// CHECK-SAME: hyper(lr = 1.000000e-03 in [0.000000e+00, inf), beta = 0.99899999999999999 in [-1.000000e+00, 1.000000e+00))
// CHECK-SAME: scalars(%[[STEP:.*]]: i64, %[[LR:.*]]: f64, %[[BETA:.*]]: f64)
// CHECK: %[[POWER:.*]] = msamp.powi %[[BETA]], %[[STEP]] : f64
// CHECK: msamp.yield %[[LR]], %[[POWER]] : f64, f64
// CHECK: body(%[[P:.*]]: f32, %[[G:.*]]: f32, %[[V:.*]]: f32, %[[S:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32)
// CHECK: msamp.yield %{{.*}}, %[[G]], %[[S]] : f32, f32, f32
msamp.optimizer @momentum
    states(velocity, "second moment" : nonnegative)
    hyper(lr = 1.0e-3 in [0.0, inf), beta = 0.999 in [-1.0, 1.0))
scalars(%step: i64, %lr: f64, %beta: f64) {
  %power = msamp.powi %beta, %step : f64
  msamp.yield %lr, %power : f64, f64
} body(%param: f32, %grad: f32, %velocity: f32, %second: f32, %lr: f32, %power: f32) {
  %update = arith.mulf %lr, %grad : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new, %grad, %second : f32, f32, f32
}

// Nothing but a parameter; an empty list of scalars; an attribute dictionary.
// CHECK-LABEL: msamp.optimizer @frozen states() hyper() attributes {note = "keeps"}
// CHECK: msamp.yield
// CHECK-NOT: f64
// CHECK: body(%[[P:.*]]: f32, %{{.*}}: f32)
// CHECK: msamp.yield %[[P]] : f32
msamp.optimizer @frozen states() hyper() attributes {note = "keeps"}
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// Every op of the closed set is accepted.
// CHECK-LABEL: msamp.optimizer @closed_set
msamp.optimizer @closed_set states() hyper()
scalars(%step: i64) {
  %0 = arith.sitofp %step : i64 to f64
  %1 = msamp.powi %0, %step : f64
  msamp.yield %1 : f64
} body(%param: f32, %grad: f32, %step: f32) {
  %c = arith.constant 2.0 : f32
  %j = arith.constant 7 : i32
  %0 = arith.addf %param, %grad : f32
  %1 = arith.subf %0, %c : f32
  %2 = arith.mulf %1, %1 : f32
  %3 = arith.divf %2, %c : f32
  %4 = arith.negf %3 : f32
  %5 = math.absf %4 : f32
  %6 = math.sqrt %5 : f32
  %7 = math.fma %6, %c, %param : f32
  %8 = arith.minimumf %7, %c : f32
  %9 = arith.maximumf %8, %c : f32
  %10 = arith.cmpf olt, %9, %c : f32
  %11 = arith.select %10, %9, %c : f32
  %12 = arith.bitcast %11 : f32 to i32
  %13 = arith.addi %12, %j : i32
  %14 = arith.subi %13, %j : i32
  %15 = arith.muli %14, %j : i32
  %16 = arith.andi %15, %j : i32
  %17 = arith.ori %16, %j : i32
  %18 = arith.xori %17, %j : i32
  %19 = arith.shli %18, %j : i32
  %20 = arith.shrui %19, %j : i32
  %21 = arith.shrsi %20, %j : i32
  %22 = arith.cmpi slt, %21, %j : i32
  %23 = arith.extui %22 : i1 to i32
  %24 = arith.extsi %23 : i32 to i64
  %25 = arith.trunci %24 : i64 to i32
  %26 = arith.sitofp %25 : i32 to f32
  msamp.yield %26 : f32
}

!w = !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>

// CHECK-LABEL: func.func @tensors
func.func @tensors(%w: !w, %m: tensor<4xf16>, %g: tensor<4xf32>, %v: tensor<4xf32>, %s: tensor<4xbf16>)
    -> (!w, tensor<4xf16>, tensor<4xf32>, tensor<4xbf16>) {
  // CHECK: msamp.wrapped_update @momentum name "h.0.weight" weight(%{{.*}} : !msamp.scaled<4, {{.*}}>) master_weight(%{{.*}} : tensor<4xf16>) grad(%{{.*}} : tensor<4xf32>) states(%{{.*}}, %{{.*}} : tensor<4xf32>, tensor<4xbf16>) pre {
  // CHECK-NEXT: ^bb0(%[[P:.*]]: f32, %[[G:.*]]: f32):
  // CHECK-NEXT: %[[D:.*]] = arith.addf %[[P]], %[[G]] : f32
  // CHECK-NEXT: msamp.yield %[[D]] : f32
  // CHECK-NEXT: } post {
  // CHECK-NEXT: ^bb0(%[[OLD:.*]]: f32, %[[NEW:.*]]: f32):
  // CHECK-NEXT: msamp.yield %[[OLD]] : f32
  %0:4 = msamp.wrapped_update @momentum name "h.0.weight" weight(%w : !w) master_weight(%m : tensor<4xf16>)
      grad(%g : tensor<4xf32>) states(%v, %s : tensor<4xf32>, tensor<4xbf16>)
  pre {
  ^bb0(%param: f32, %grad: f32):
    %sum = arith.addf %param, %grad : f32
    msamp.yield %sum : f32
  } post {
  ^bb0(%before: f32, %after: f32):
    msamp.yield %before : f32
  }
  return %0#0, %0#1, %0#2, %0#3 : !w, tensor<4xf16>, tensor<4xf32>, tensor<4xbf16>
}

// CHECK-LABEL: func.func @bundles
func.func @bundles(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) -> !msamp.bundle<@m, weight> {
  // CHECK: msamp.wrapped_update @frozen weight(%{{.*}} : !msamp.bundle<@m, weight>) grad(%{{.*}} : !msamp.bundle<@m, grad>){{$}}
  %0 = msamp.wrapped_update @frozen weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return %0 : !msamp.bundle<@m, weight>
}

// CHECK-LABEL: func.func @update
func.func @update(%p: !msamp.bundle<@m, wide>, %g: !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide> {
  // CHECK: msamp.update @frozen(%{{.*}}, %{{.*}}) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  %0 = msamp.update @frozen(%p, %g) : (!msamp.bundle<@m, wide>, !msamp.bundle<@m, wide>) -> !msamp.bundle<@m, wide>
  return %0 : !msamp.bundle<@m, wide>
}

// CHECK-LABEL: func.func @packing
func.func @packing(%a: tensor<4xf32>, %w: !w) -> (tensor<4xf32>, !w) {
  // CHECK: %[[B:.*]] = msamp.pack(%{{.*}}, %{{.*}}) : (tensor<4xf32>, !msamp.scaled<4, {{.*}}>) -> !msamp.bundle<@m, weight>
  %0 = msamp.pack(%a, %w) : (tensor<4xf32>, !w) -> !msamp.bundle<@m, weight>
  // CHECK: msamp.unpack(%[[B]]) : (!msamp.bundle<@m, weight>) -> (tensor<4xf32>, !msamp.scaled<4, {{.*}}>)
  %1:2 = msamp.unpack(%0) : (!msamp.bundle<@m, weight>) -> (tensor<4xf32>, !w)
  return %1#0, %1#1 : tensor<4xf32>, !w
}
