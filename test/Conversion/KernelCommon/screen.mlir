// An amax of a quotient by a root is found without root and division where a bound of the
// quotient is not above the maximum so far.
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_90a | FileCheck %s
// RUN: msamp-opt %s --convert-msamp-to-cpu | FileCheck %s --check-prefix=CPU

msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>, s = #msamp.storage<f32>}
}
msamp.optimizer @o states(s : nonnegative) hyper(lr = 0.1 in [0.0, inf), eps = 0.5 in [0.0, 1.0))
scalars(%step: i64, %lr: f64, %eps: f64) {
  msamp.yield %lr, %eps : f64, f64
} body(%param: f32, %grad: f32, %s: f32, %lr: f32, %eps: f32) {
  msamp.yield %param, %s : f32, f32
}
msamp.launch @step layout(@m) optimizer(@o) schedule(two_phase) {
  msamp.kernel @k class(@c) phase(reduce) {
    %x = msamp.load "s" : f32
    %n = msamp.load "grad" : f32
    %factor = msamp.uniform scalar "0" : f32
    %eps = msamp.uniform scalar "1" : f32
    %root = math.sqrt %x : f32
    %scaled = arith.mulf %root, %factor : f32
    %divisor = arith.addf %scaled, %eps : f32
    %quotient = arith.divf %n, %divisor : f32
    %bits = arith.bitcast %quotient : f32 to i32
    %mask = arith.constant 2147483647 : i32
    %magnitude = arith.andi %bits, %mask : i32
    %max = msamp.reduce max %magnitude scope(tensor) as amax of "weight" : i32
  }
}
// CHECK: llvm.func internal @k(
// The divisor is at least its scaled root and at least its addend, if the factor is positive
// and the addend not negative; else the bound is NaN, which is not below anything.
// CHECK-DAG: %[[SLACK:.*]] = arith.constant dense<1.062500e+00> : vector<4xf32>
// CHECK-DAG: %[[NAN:.*]] = arith.constant dense<0x7FC00000> : vector<4xf32>
// CHECK: arith.cmpf ole, %[[SCALE:.*]], %{{.*}} : vector<4xf32>
// CHECK: arith.cmpf oge, %[[SCALE]], %{{.*}} : vector<4xf32>
// CHECK: arith.cmpf oge, %[[ADDEND:.*]], %{{.*}} : vector<4xf32>
// CHECK: %[[INVERSE:.*]] = arith.divf %[[SLACK]], %[[SCALE]] : vector<4xf32>
// CHECK: %[[TAME:.*]] = arith.select %{{.*}}, %[[INVERSE]], %[[NAN]]
// CHECK: %[[POSITIVE:.*]] = math.absf %[[ADDEND]]
// CHECK: %[[MOST:.*]] = arith.divf %{{.*}}, %[[POSITIVE]] : vector<4xf32>
// CHECK: %[[NUMERATOR:.*]] = math.absf
// CHECK-COUNT-4: llvm.call_intrinsic "llvm.nvvm.rsqrt.approx.ftz.f"
// CHECK: %[[ROOT:.*]] = arith.mulf %{{.*}}, %[[TAME]] : vector<4xf32>
// CHECK: %[[FACTOR:.*]] = arith.minimumf %[[ROOT]], %[[MOST]] : vector<4xf32>
// CHECK: arith.mulf %[[NUMERATOR]], %[[FACTOR]] : vector<4xf32>
// CHECK-COUNT-3: arith.maximumf
// CHECK: %[[BELOW:.*]] = arith.cmpf ole, %{{.*}}, %[[MAX:.*]] : f32
// CHECK: arith.cmpf oge, %[[MAX]], %{{.*}} : f32
// CHECK: scf.if %{{.*}} -> (f32) {
// CHECK-NEXT: scf.yield %[[MAX]]
// CHECK: math.sqrt %{{.*}} : vector<4xf32>
// CHECK: arith.divf %{{.*}}, %{{.*}} : vector<4xf32>

// CPU: llvm.func @k
// CPU: arith.minimumf
// CPU: scf.if
// CPU: math.sqrt
// CPU: arith.divf
