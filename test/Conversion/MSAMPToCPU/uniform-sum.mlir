// A sum over a value that all elements share counts every element, however the tensor is
// cut into calls: it enters the result times the count, or once for each element.
// RUN: msamp-opt %s --msamp-split-phases --convert-msamp-to-cpu | FileCheck %s

// CHECK-LABEL: llvm.func @k_store_x86_64(
// CHECK: {{scf\.for .* iter_args|arith\.muli}}
// CHECK: llvm.return
// CHECK-LABEL: llvm.func @k_store_x86_64_v3(
msamp.layout @m {
  msamp.storage_class @a
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @step layout(@m) optimizer(@plain) {
  msamp.kernel @k class(@a) {
    %w = msamp.uniform scalar "0" : f32
    %bits = arith.bitcast %w : f32 to i32
    %sum = msamp.reduce sum %bits scope(tensor) as flushed of "weight" : i32
  }
}
