// A kernel of phase settle becomes one function, which runs once for each tensor: it
// compares the scales of both ends, says what they tell, and returns the phase that finds
// the rest.
// RUN: msamp-opt %s --convert-msamp-to-cpu | FileCheck %s
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_90a | FileCheck %s --check-prefix=GPU
// RUN: not msamp-opt %s --convert-msamp-to-gpu="arch=sm_90a fast-math" 2>&1 | FileCheck %s --check-prefix=FAST

// FAST: error: 'msamp.launch' op has the schedule speculative, whose bounds do not hold for fast math; leave one of them out

msamp.layout @m {
  msamp.storage_class @other
  msamp.storage_class @a {
    weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    state = #msamp.storage<f16, scaling = <per_tensor, current>>}
}
msamp.optimizer @plain states(state : signed) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %state: f32) {
  msamp.yield %param, %state : f32, f32
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(speculative) {
  msamp.kernel @tell class(@a) phase(settle) {
    %low = msamp.uniform stored_amax "state" : f32
    %two = arith.constant 2.0 : f32
    %high = arith.mulf %low, %two : f32
    msamp.settle %low, %high of "state" for f16 otherwise narrow
    msamp.settle %low, %low of "weight" for f16 otherwise reduce
  }
}
// No instruction set but the plainest: it is called once a tensor.
// CHECK-COUNT-1: llvm.func @tell(%[[UNIFORMS:.*]]: !llvm.ptr) -> i32
// CHECK-SAME: target_cpu = "x86-64"
// Uniforms of role 3, the state: 3 * 7 + 4 is stored_amax, 3 * 7 + 6 settled.
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[UNIFORMS]][25]
// CHECK: %[[LOW:.*]] = llvm.load %[[PLACE]]
// CHECK: %[[HIGH:.*]] = arith.mulf %[[LOW]]
// CHECK: %[[SAME:.*]] = arith.cmpf oeq
// CHECK: %[[ORDERED:.*]] = arith.cmpf ole, %[[LOW]], %[[HIGH]] : f32
// CHECK: %[[FINITE:.*]] = arith.cmpf ole, %[[HIGH]], %{{.*}} : f32
// CHECK: %[[BOTH:.*]] = arith.andi %[[ORDERED]], %[[FINITE]] : i1
// CHECK: %[[IS:.*]] = arith.andi %[[SAME]], %[[BOTH]] : i1
// CHECK: %[[MINUS:.*]] = arith.constant -1.000000e+00 : f32
// CHECK: %[[SETTLED:.*]] = arith.select %[[IS]], %[[HIGH]], %[[MINUS]] : f32
// CHECK: %[[TO:.*]] = llvm.getelementptr %[[UNIFORMS]][27]
// CHECK: llvm.store %[[SETTLED]], %[[TO]]
// CHECK: arith.xori %[[IS]]
// CHECK: %[[NARROW:.*]] = arith.ori
// CHECK: llvm.getelementptr %[[UNIFORMS]][6]
// CHECK: %[[REDUCE:.*]] = arith.ori
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[FOUR:.*]] = arith.constant 4 : i32
// CHECK-DAG: %[[NONE:.*]] = arith.constant 0 : i32
// CHECK: %[[REST:.*]] = arith.select %[[NARROW]], %[[FOUR]], %[[NONE]] : i32
// CHECK: %[[PHASE:.*]] = arith.select %[[REDUCE]], %[[ONE]], %[[REST]] : i32
// CHECK: llvm.return %[[PHASE]] : i32
// CHECK-NOT: llvm.func @tell

// On a GPU the device library asks for it by class.
// GPU: gpu.module @sm_90a
// GPU: llvm.func @msamp_is_speculative() -> i32 {
// GPU-NEXT: arith.constant 1 : i32
// GPU: llvm.func @tell(%{{.*}}: !llvm.ptr) -> i32 {
// GPU: llvm.func @msamp_settle(%[[UNIFORMS:.*]]: !llvm.ptr, %[[CLASS:.*]]: i32) -> i32 {
// GPU: arith.index_castui %[[CLASS]]
// GPU: scf.index_switch
// GPU-NEXT: case 1 {
// GPU-NEXT: llvm.call @tell(%[[UNIFORMS]])
