// The whole pipeline leaves nothing but LLVM dialect in @cpu, for every format and op of
// the closed set.
// RUN: msamp-opt %s --msamp-step-to-cpu | sed -n '/module @cpu/,$p' | FileCheck %s

// CHECK-LABEL: module @cpu {
// CHECK-NOT: {{msamp\.(decode|encode|powi)|[ "](arith|math|vector|scf|cf|func)\.|unrealized_conversion_cast}}
// CHECK: llvm.func @all_scalars(
// CHECK-NOT: {{msamp\.(decode|encode|powi)|[ "](arith|math|vector|scf|cf|func)\.|unrealized_conversion_cast}}
// CHECK: llvm.func @narrow_store_x86_64(
// CHECK-NOT: {{msamp\.(decode|encode|powi)|[ "](arith|math|vector|scf|cf|func)\.|unrealized_conversion_cast}}
// CHECK: llvm.func @wide_store_x86_64_v4(
// CHECK-NOT: {{msamp\.(decode|encode|powi)|[ "](arith|math|vector|scf|cf|func)\.|unrealized_conversion_cast}}

msamp.optimizer @all states(s) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  %power = msamp.powi %lr, %step : f64
  %root = math.sqrt %power : f64
  %t = arith.sitofp %step : i64 to f64
  %r = arith.minimumf %root, %t : f64
  msamp.yield %r : f64
} body(%param: f32, %grad: f32, %s: f32, %r: f32) {
  %c = arith.constant 2.0 : f32
  %j = arith.constant 7 : i32
  %0 = math.fma %param, %grad, %r : f32
  %1 = arith.maximumf %0, %s : f32
  %2 = arith.minimumf %1, %c : f32
  %3 = arith.bitcast %2 : f32 to i32
  %4 = arith.muli %3, %j : i32
  %5 = arith.xori %4, %j : i32
  %6 = arith.shli %5, %j : i32
  %7 = arith.shrsi %6, %j : i32
  %8 = arith.cmpi slt, %7, %j : i32
  %9 = arith.extui %8 : i1 to i32
  %10 = arith.extsi %9 : i32 to i64
  %11 = arith.trunci %10 : i64 to i32
  %12 = arith.sitofp %11 : i32 to f32
  %13 = math.absf %12 : f32
  %14 = math.sqrt %13 : f32
  %15 = arith.negf %14 : f32
  %16 = arith.divf %15, %c : f32
  msamp.yield %16, %2 : f32, f32
}
msamp.layout @m {
  msamp.storage_class @narrow {
    weight = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>, master_weight = #msamp.storage<f16>,
    grad = #msamp.storage<f8E5M2, scaling = <per_tensor, current>>, s = #msamp.storage<f8E5M2, scaling = <per_tensor, delayed, history = 4>>}
  msamp.storage_class @wide {weight = #msamp.storage<f32>, grad = #msamp.storage<bf16>, s = #msamp.storage<f16, scaling = <per_tensor, current>>}
  msamp.tensor "a" : tensor<4x8xf32> class(@narrow)
  msamp.tensor "b" : tensor<8xf32> class(@wide)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %mw: !msamp.bundle<@m, master_weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, s>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, s>) {
  %0:3 = msamp.wrapped_update @all weight(%w : !msamp.bundle<@m, weight>) master_weight(%mw : !msamp.bundle<@m, master_weight>)
      grad(%g : !msamp.bundle<@m, grad>) states(%s : !msamp.bundle<@m, s>)
  return %0#0, %0#1, %0#2 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, master_weight>, !msamp.bundle<@m, s>
}
