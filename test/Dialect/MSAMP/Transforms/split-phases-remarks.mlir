// A second pass over the elements is a missed optimization and says what it is for; a
// reduce phase that can be skipped is none.
// RUN: msamp-opt %s --msamp-split-phases --remarks-filter='msamp-split-phases' -o /dev/null 2>&1 | FileCheck %s

msamp.layout @m {
  msamp.storage_class @a
  // 2^30 elements: 17 and 22 bytes each at 4146 GB/s.
  msamp.tensor "t" : tensor<32768x32768xf32> class(@a)
  msamp.storage_class @b
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @step layout(@m) optimizer(@plain) {
  // CHECK-DAG: split-phases-remarks.mlir:[[#@LINE+1]]:3: remark: [Missed] Phases | Category:msamp-split-phases | Function=step | Remark="kernel @two: two phases, 5 bytes a parameter are read twice, for the exact scales of weight, state; delayed or bounded scaling would read them once: 17 in place of 22 bytes a parameter, 4.403 in place of 5.698 ms of an H200's memory for this class"
  msamp.kernel @two class(@a) {
    %w = msamp.load "weight" : f32
    %s = msamp.load "state" : f8E4M3FN
    %only_stored = msamp.load "other" : f16
    %d = msamp.decode %s : f8E4M3FN -> f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %x = arith.mulf %w, %amax : f32
    msamp.store %x to "weight" : f32
    %bits2 = arith.bitcast %d : f32 to i32
    %max2 = msamp.reduce max %bits2 scope(tensor) as amax of "state" : i32
    %amax2 = arith.bitcast %max2 : i32 to f32
    %y = arith.mulf %d, %amax2 : f32
    msamp.store %y to "state" : f32
    msamp.store %only_stored to "other" : f16
  }
  // CHECK-DAG: split-phases-remarks.mlir:[[#@LINE+1]]:3: remark: [Passed] Phases | Category:msamp-split-phases | Function=step | Remark="kernel @one: the reduce phase only looks for overflow and fills histories; it is skipped where the gradient's amax is known and histories are full"
  msamp.kernel @one class(@b) {
    %g = msamp.load "grad" : f32
    %bits = arith.bitcast %g : f32 to i32
    %max = msamp.reduce max %bits scope(all) as amax of "grad" : i32
    msamp.store %g to "weight" : f32
  }
}
