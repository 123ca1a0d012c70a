// Losses are counted by the bits of values, for vectors and for the elements that are
// left alike: flushed are those up to half the smallest number, but for zero; saturated
// those above the largest.
// RUN: msamp-opt %s --convert-msamp-to-cpu | FileCheck %s

msamp.layout @m {
  msamp.storage_class @c
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}

// -(2^31 - 2^-10's bits): zero is moved above all others, so that one signed compare
// does.
// CHECK-LABEL: llvm.func @flushed_x86_64(
// CHECK: scf.for {{.*}} iter_args(
// CHECK: arith.constant 2147483647 : i32
// CHECK: %[[BITS:.*]] = arith.andi %{{.*}}, %{{.*}} : vector<8xi32>
// CHECK: %[[MOVED:.*]] = arith.addi %[[BITS]], %{{.*}} : vector<8xi32>
// CHECK: arith.constant -1166016512 : i32
// CHECK: %[[LOST:.*]] = arith.cmpi slt, %[[MOVED]], %{{.*}} : vector<8xi32>
// CHECK: %[[COUNT:.*]] = arith.extui %[[LOST]] : vector<8xi1> to vector<8xi32>
// CHECK: arith.addi %{{.*}}, %[[COUNT]] : vector<8xi32>
// CHECK: vector.reduction <add>, %{{.*}} : vector<8xi32> into i32
// CHECK: scf.for
// CHECK: arith.constant -1166016512 : i32
// CHECK: %[[LOST:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}} : i32
// CHECK: %[[COUNT:.*]] = arith.extui %[[LOST]] : i1 to i32
// CHECK: arith.addi %{{.*}}, %[[COUNT]] : i32

// 448's bits.
// CHECK-LABEL: llvm.func @saturated_x86_64(
// CHECK: arith.constant 1138753536 : i32
// CHECK: arith.cmpi sgt, %{{.*}}, %{{.*}} : vector<8xi32>
// CHECK: arith.constant 1138753536 : i32
// CHECK: arith.cmpi sgt, %{{.*}}, %{{.*}} : i32
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
  msamp.kernel @flushed class(@c) phase(store) {
    %x = msamp.load "weight" : f32
    %q = msamp.encode saturate %x : f32 -> f8E4M3FN
    msamp.store %q to "grad" : f8E4M3FN
    %lost = msamp.count_loss flushed %x as %q : f8E4M3FN -> i32
    %sum = msamp.reduce sum %lost scope(tensor) as flushed of "grad" : i32
  }
  msamp.kernel @saturated class(@c) phase(store) {
    %x = msamp.load "weight" : f32
    %q = msamp.encode saturate %x : f32 -> f8E4M3FN
    msamp.store %q to "grad" : f8E4M3FN
    %lost = msamp.count_loss saturated %x as %q : f8E4M3FN -> i32
    %sum = msamp.reduce sum %lost scope(tensor) as saturated of "grad" : i32
  }
}
