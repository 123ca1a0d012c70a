// Folds of powi, pack and unpack, and wrappers that change nothing.
// RUN: msamp-opt %s --canonicalize | FileCheck %s

// Square and multiply, each product rounded; negative exponents invert the power.
// CHECK-LABEL: func.func @powi_f64
func.func @powi_f64() -> (f64, f64, f64, f64, f64) {
  %beta = arith.constant 0.9 : f64
  %two = arith.constant 2.0 : f64
  %zero = arith.constant 0.0 : f64
  %c0 = arith.constant 0 : i64
  %c10 = arith.constant 10 : i64
  %c3 = arith.constant 3 : i64
  %m2 = arith.constant -2 : i64
  %min = arith.constant -9223372036854775808 : i64
  // CHECK-DAG: %[[ONE:.*]] = arith.constant 1.000000e+00 : f64
  // CHECK-DAG: %[[P10:.*]] = arith.constant 1.024000e+03 : f64
  // 0.7290000000000001, where the correctly rounded power is 0.729.
  // CHECK-DAG: %[[BETA3:.*]] = arith.constant 0.72900000000000009 : f64
  // CHECK-DAG: %[[QUARTER:.*]] = arith.constant 2.500000e-01 : f64
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f64
  %0 = msamp.powi %zero, %c0 : f64
  %1 = msamp.powi %two, %c10 : f64
  %2 = msamp.powi %beta, %c3 : f64
  %3 = msamp.powi %two, %m2 : f64
  // The magnitude of the smallest i64 is no i64; 1 / inf is 0.
  %4 = msamp.powi %two, %min : f64
  // CHECK: return %[[ONE]], %[[P10]], %[[BETA3]], %[[QUARTER]], %[[ZERO]] :
  return %0, %1, %2, %3, %4 : f64, f64, f64, f64, f64
}

// In f32 each product is rounded to f32; rounding once would give 1099915118.
// CHECK-LABEL: func.func @powi_f32
func.func @powi_f32() -> i32 {
  %base = arith.constant 1.3 : f32
  %n = arith.constant 11 : i64
  // CHECK: %[[P:.*]] = arith.constant 1099915117 : i32
  // CHECK: return %[[P]]
  %0 = msamp.powi %base, %n : f32
  %1 = arith.bitcast %0 : f32 to i32
  return %1 : i32
}

// CHECK-LABEL: func.func @powi_one
// CHECK-SAME: (%[[X:.*]]: f64, %[[N:.*]]: i64)
func.func @powi_one(%x: f64, %n: i64) -> (f64, f64, f64) {
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  // CHECK-DAG: %[[SQUARE:.*]] = msamp.powi %[[X]], %{{.*}} : f64
  // CHECK-DAG: %[[POWER:.*]] = msamp.powi %[[X]], %[[N]] : f64
  %0 = msamp.powi %x, %c1 : f64
  %1 = msamp.powi %x, %c2 : f64
  %2 = msamp.powi %x, %n : f64
  // CHECK: return %[[X]], %[[SQUARE]], %[[POWER]]
  return %0, %1, %2 : f64, f64, f64
}

// CHECK-LABEL: func.func @unpack_of_pack
// CHECK-SAME: (%[[A:.*]]: tensor<4xf32>, %[[B:.*]]: tensor<8xf32>)
func.func @unpack_of_pack(%a: tensor<4xf32>, %b: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  // CHECK-NEXT: return %[[A]], %[[B]]
  %0 = msamp.pack(%a, %b) : (tensor<4xf32>, tensor<8xf32>) -> !msamp.bundle<@m, weight>
  %1:2 = msamp.unpack(%0) : (!msamp.bundle<@m, weight>) -> (tensor<4xf32>, tensor<8xf32>)
  return %1#0, %1#1 : tensor<4xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @pack_of_unpack
// CHECK-SAME: (%[[X:.*]]: !msamp.bundle<@m, weight>)
func.func @pack_of_unpack(%x: !msamp.bundle<@m, weight>) -> !msamp.bundle<@m, weight> {
  // CHECK-NEXT: return %[[X]]
  %0:2 = msamp.unpack(%x) : (!msamp.bundle<@m, weight>) -> (tensor<4xf32>, tensor<8xf32>)
  %1 = msamp.pack(%0#0, %0#1) : (tensor<4xf32>, tensor<8xf32>) -> !msamp.bundle<@m, weight>
  return %1 : !msamp.bundle<@m, weight>
}

// Another order, or another role, is another bundle.
// CHECK-LABEL: func.func @pack_of_something_else
func.func @pack_of_something_else(%x: !msamp.bundle<@m, weight>) -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, grad>) {
  // CHECK: msamp.unpack
  // CHECK-DAG: %[[P:.*]] = msamp.pack{{.*}} -> !msamp.bundle<@m, weight>
  // CHECK-DAG: %[[Q:.*]] = msamp.pack{{.*}} -> !msamp.bundle<@m, grad>
  // CHECK: return %[[P]], %[[Q]]
  %0:2 = msamp.unpack(%x) : (!msamp.bundle<@m, weight>) -> (tensor<4xf32>, tensor<4xf32>)
  %1 = msamp.pack(%0#1, %0#0) : (tensor<4xf32>, tensor<4xf32>) -> !msamp.bundle<@m, weight>
  %2 = msamp.pack(%0#0, %0#1) : (tensor<4xf32>, tensor<4xf32>) -> !msamp.bundle<@m, grad>
  return %1, %2 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, grad>
}

// A `pre` that yields the gradient and a `post` that yields the new parameter are
// none; the other ones stay.
// CHECK-LABEL: func.func @identity_wrappers
func.func @identity_wrappers(%w: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // CHECK: msamp.wrapped_update @o weight(%{{.*}} : tensor<4xf32>) grad(%{{.*}} : tensor<4xf32>){{$}}
  // CHECK-NOT: pre
  %0 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) pre {
  ^bb0(%param: f32, %grad: f32):
    msamp.yield %grad : f32
  } post {
  ^bb0(%before: f32, %after: f32):
    msamp.yield %after : f32
  }
  // CHECK: msamp.wrapped_update @o weight(%{{.*}} : tensor<4xf32>) grad(%{{.*}} : tensor<4xf32>) pre {
  // CHECK: msamp.yield %{{.*}} : f32
  // CHECK: } post {
  // CHECK: msamp.yield %{{.*}} : f32
  %1 = msamp.wrapped_update @o weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>) pre {
  ^bb0(%param: f32, %grad: f32):
    msamp.yield %param : f32
  } post {
  ^bb0(%before: f32, %after: f32):
    msamp.yield %before : f32
  }
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
