// What a kernel reads comes through a ring in shared memory: in bulk from sm_90 on, by lanes
// before, and for steps that ranks share. convert-msamp-to-gpu.mlir has the loops around it.
// RUN: msamp-opt %s --convert-msamp-to-gpu="arch=sm_90a threads=128 chunk-elements=1024" | sed '/msamp.launch @step/,/^  }/d' | FileCheck %s --check-prefix=BULK
// RUN: msamp-opt %s --convert-msamp-to-gpu="arch=sm_80 threads=128 chunk-elements=1024" | sed '/msamp.launch @step/,/^  }/d' | FileCheck %s --check-prefix=LANES

// Two stages of two vectors of 8 elements: 2 * 32 * 8 * (2 + 1) bytes for each of 4 warps.
// BULK: gpu.module @sm_90a
// BULK-SAME: msamp.shared_bytes = 12288 : i32
// BULK: llvm.mlir.global internal @arrivals() {addr_space = 3 : i32, alignment = 8 : i64} : !llvm.array<8 x i64>
// BULK: llvm.func internal @k(
// A bulk copy is of 16 bytes at least, so vectors are of a multiple of 16 elements.
// BULK: arith.constant -16 : i32
// A stage tells how many bytes it waits for: 3 an element; two copies bring them.
// BULK: nvvm.elect.sync
// BULK: %[[THREE:.*]] = arith.constant 3 : i32
// BULK-NEXT: %[[BYTES:.*]] = arith.muli %[[COUNT:.*]], %[[THREE]] : i32
// BULK-NEXT: nvvm.mbarrier.arrive.expect_tx %[[ARRIVAL:.*]], %[[BYTES]]
// BULK: %[[OF_WEIGHT:.*]] = arith.muli %[[COUNT]], %c2_i32{{.*}} : i32
// BULK: nvvm.cp.async.bulk.shared.cluster.global %{{.*}}, %{{.*}}, %[[ARRIVAL]], %[[OF_WEIGHT]]
// BULK: %[[OF_GRAD:.*]] = arith.muli %[[COUNT]], %c1_i32{{.*}} : i32
// BULK: nvvm.cp.async.bulk.shared.cluster.global %{{.*}}, %{{.*}}, %[[ARRIVAL]], %[[OF_GRAD]]

// Three stages of a vector: 3 * 32 * 8 * 3 bytes a warp. A lane copies 16 bytes and 8.
// LANES: gpu.module @sm_80
// LANES-SAME: msamp.shared_bytes = 9216 : i32
// LANES-NOT: @arrivals
// LANES: llvm.func internal @k(
// LANES: arith.constant -8 : i32
// LANES: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache =  cg
// LANES: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 8, cache =  ca
// LANES: nvvm.cp.async.commit.group
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(one_pass) {
  msamp.kernel @k class(@c) phase(store) {
    %p = msamp.load "weight" : f16
    %g = msamp.load "grad" : f8E4M3FN
    %x = msamp.decode %p : f16 -> f32
    %y = msamp.decode %g : f8E4M3FN -> f32
    %z = arith.addf %x, %y : f32
    %q = msamp.encode saturate %z : f32 -> f16
    msamp.store %q to "weight" : f16
  }
}
