// The kernels of a launch become one gpu.module for each architecture, and one for the
// least of them without its suffix, which later chips run: an entry point that hands over
// to the device library, a function for each kernel, one for the optimizer's scalars, and
// one by which the library reaches the kernels. What is not given as an option comes from
// Tuning.def.
// RUN: msamp-opt %s --convert-msamp-to-gpu="arch=sm_90a,sm_100 access-bytes=16 threads=128 blocks-per-sm=3 chunk-elements=1024 stages=2" > %t
// RUN: sed '/msamp.launch @step/,/^  }/d' %t > %t.code
// RUN: FileCheck %s < %t.code
// RUN: FileCheck %s --check-prefix=LEFT < %t.code
// RUN: FileCheck %s --check-prefix=KEPT < %t
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_80 | FileCheck %s --check-prefix=OLD
// RUN: msamp-opt %s --convert-msamp-to-gpu="arch=sm_80 threads=128 blocks-per-sm=3 chunk-elements=1024 stages=2" | sed '/msamp.launch @step/,/^  }/d' | FileCheck %s --check-prefix=LANES
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_90a,sm_80 | grep -c 'gpu.module @' | FileCheck %s --check-prefix=TWO
// RUN: msamp-opt %s --convert-msamp-to-gpu | FileCheck %s --check-prefix=NONE

// Only decode and encode are left to later passes.
// LEFT-NOT: msamp.{{(load|store|uniform|reduce|hash|count_loss|compute_scale|kernel|launch)}} {{.}}
// LEFT: msamp.decode
// LEFT: msamp.encode
// LEFT-NOT: msamp.{{(load|store|uniform|reduce|hash|count_loss|compute_scale|kernel|launch)}} {{.}}

// sm_80 has casts of f16, but none of FP8; it is its own portable module.
// OLD: gpu.module @sm_80 [#nvvm.target<O = 3, chip = "sm_80"{{.*}}>]
// OLD-NOT: msamp.native_fp8
// OLD-SAME: msamp.native_casts
// OLD-NOT: msamp.native_fp8
// OLD-SAME: msamp.wants_cubin
// OLD-NOT: gpu.module

// There each thread copies its own vectors, 16 bytes at a time, and waits for nobody.
// LANES: llvm.func internal @k(
// LANES: nvvm.bar.warp.sync
// LANES: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
// LANES: nvvm.cp.async.commit.group
// LANES: scf.while
// LANES: arith.cmpi uge, %{{.*}}, %c256_i32{{.*}} : i32
// LANES: scf.for
// LANES: nvvm.cp.async.wait.group
// LANES: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16,
// LANES-NOT: mbarrier
// LANES: llvm.func internal @look(

// TWO: {{^2$}}
// NONE-NOT: gpu.module

msamp.layout @m {
  msamp.storage_class @other
  msamp.storage_class @c {weight = #msamp.storage<f16>, grad = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
}
msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf), beta = 0.5 in [0.0, 1.0))
scalars(%step: i64, %lr: f64, %beta: f64) {
  %power = msamp.powi %beta, %step : f64
  msamp.yield %lr, %power : f64, f64
} body(%param: f32, %grad: f32, %lr: f32, %power: f32) {
  msamp.yield %param : f32
}

// The launch stays, as the plan's table of contents.
// KEPT: msamp.launch @step
// KEPT: msamp.kernel @k
// KEPT: msamp.kernel @look

// CHECK: gpu.module @sm_90a [#nvvm.target<O = 3, chip = "sm_90a"{{.*}}>] attributes {
// CHECK-SAME: msamp.access_bytes = 16 : i32
// CHECK-SAME: msamp.blocks_per_sm = 3 : i32
// CHECK-SAME: msamp.chunk_elements = 1024 : i32
// CHECK-SAME: msamp.native_casts
// CHECK-SAME: msamp.native_fp8
// 2 stages of 4 warps, each of 32 threads with two vectors of 8 f16.
// CHECK-SAME: msamp.shared_bytes = 8192 : i32
// CHECK-SAME: msamp.threads = 128 : i32
// CHECK-SAME: msamp.wants_cubin

// CHECK: llvm.func @msamp_step(%[[STEP:.*]]: !llvm.ptr) attributes {nvvm.kernel, nvvm.minctasm = 3 : i32, nvvm.reqntid = array<i32: 128, 1, 1>}
// CHECK-NEXT: llvm.call @msamp_run_step(%[[STEP]])
// CHECK-NEXT: llvm.return

// step, hyper-parameters, results; rounded once on the way out.
// CHECK: llvm.func @msamp_scalars(%{{.*}}: i64, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK: scf.while
// CHECK: arith.mulf %{{.*}} : f64
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: llvm.return

// step, the warp's place in the sweep, chunk; returns the first chunk that it leaves.
// CHECK: llvm.func internal @k(%[[STEP:.*]]: !llvm.ptr, %[[CURSOR:.*]]: !llvm.ptr, %[[CHUNK:.*]]: i64) -> i64
// CHECK-DAG: llvm.call @msamp_num_elements(%[[STEP]], %{{.*}})
// CHECK-DAG: llvm.call @msamp_head(%[[STEP]], %{{.*}})
// CHECK-DAG: %[[RESULTS:.*]] = llvm.call @msamp_results(%[[STEP]], %{{.*}})
// CHECK-DAG: %[[UNIFORMS:.*]] = llvm.call @msamp_uniforms(%[[STEP]], %{{.*}})
// An amax comes from where the reduce phase left it, other uniforms from their table.
// CHECK-DAG: llvm.getelementptr %[[RESULTS]][0] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK-DAG: llvm.getelementptr %[[UNIFORMS]][3] : (!llvm.ptr) -> !llvm.ptr, f32
// Operands are copied to shared memory ahead of their use, a stage at a time, also into
// the next chunk while it is of the same tensor. Until then the warp's memory may be in use
// by another kernel. A barrier for each stage tells when it is filled.
// CHECK: nvvm.bar.warp.sync
// CHECK: nvvm.mbarrier.init %{{.*}}, %c1_i32{{.*}} : !llvm.ptr<3>, i32
// CHECK: nvvm.fence.mbarrier.init
// CHECK: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async>}
// CHECK: nvvm.bar.warp.sync
// CHECK-COUNT-2: nvvm.cp.async.bulk.shared.cluster.global
// CHECK: scf.while
// CHECK: llvm.call @msamp_advance(%[[CURSOR]])
// After a chunk that has fewer stages than there are, the next begins anew, also in the
// same tensor; but for tensors without vectors.
// CHECK: %[[SAME:.*]] = arith.cmpi eq, %{{.*}}, %{{.*}} : i32
// CHECK: %[[ENOUGH:.*]] = arith.cmpi uge, %[[COUNT:.*]], %c513_i32{{.*}} : i32
// CHECK: %[[WITHOUT:.*]] = arith.cmpi uge, %{{.*}}, %c1024_i32{{.*}} : i32
// CHECK: %[[AHEAD:.*]] = arith.ori %[[ENOUGH]], %[[WITHOUT]] : i1
// CHECK: %[[GOES_ON:.*]] = arith.andi %[[SAME]], %[[AHEAD]] : i1
// Stage by stage: the warp waits until it is filled, works on its vectors, and, when all
// lanes have read it, one of them has it filled again.
// CHECK: scf.for %[[BEGIN:.*]] = %c0_i32{{.*}} to %[[COUNT]] step %c512_i32{{.*}} iter_args(%{{[^ ]*}} = %{{[^,]*}}, %[[PARITY:[^ ]*]] =
// CHECK: scf.while
// CHECK: nvvm.mbarrier.try_wait %{{.*}}, %[[PARITY]]
// CHECK: scf.for %{{.*}} step %c256_i32
// Groups of four lanes; the vector is stored whole.
// CHECK: msamp.decode %{{.*}} : vector<4xf16> -> vector<4xf32>
// CHECK: math.fma %{{.*}} : vector<4xf32>
// CHECK: msamp.encode saturate %{{.*}} : vector<4xf32> -> vector<4xf8E4M3FN>
// Losses are counted only where a code is zero.
// CHECK: scf.if
// CHECK: arith.cmpi
// CHECK: msamp.decode %{{.*}} : vector<4xf16> -> vector<4xf32>
// CHECK: msamp.encode saturate %{{.*}} : vector<4xf32> -> vector<4xf8E4M3FN>
// CHECK: llvm.store %{{.*}} {alignment = 8 : i64} : vector<8xi8>, !llvm.ptr<1>
// CHECK: nvvm.bar.warp.sync
// CHECK: nvvm.elect.sync
// CHECK-NEXT: scf.if
// CHECK: nvvm.mbarrier.arrive.expect_tx %[[ARRIVAL:[^,]*]],
// CHECK: nvvm.cp.async.bulk.shared.cluster.global %{{.*}}, %{{.*}}, %[[ARRIVAL]], %{{.*}} : !llvm.ptr<7>, <1>
// Elements before the first whole vector and after the last.
// CHECK: scf.for
// CHECK: msamp.decode %{{.*}} : f16 -> f32
// CHECK: msamp.encode saturate %{{.*}} : f32 -> f8E4M3FN
// CHECK: llvm.store %{{.*}} {alignment = 1 : i64} : i8, !llvm.ptr<1>
// CHECK: scf.condition(%[[GOES_ON]])
// CHECK: nvvm.mbarrier.inval
// Results reach memory once for all chunks: amax and flushed of role 0, fingerprint.
// CHECK-DAG: %[[AMAX:.*]] = llvm.getelementptr %[[RESULTS]][0]
// CHECK-DAG: llvm.call @msamp_flush_max(%[[AMAX]], %{{.*}})
// CHECK-DAG: %[[FLUSHED:.*]] = llvm.getelementptr %[[RESULTS]][5]
// CHECK-DAG: llvm.call @msamp_flush_sum(%[[FLUSHED]], %{{.*}})
// CHECK-DAG: %[[HASH:.*]] = llvm.getelementptr %[[RESULTS]][18]
// CHECK-DAG: llvm.call @msamp_flush_sum(%[[HASH]], %{{.*}})
// CHECK: llvm.return %{{.*}} : i64

// The gradient's amax tells of an overflow as well.
// CHECK: llvm.func internal @look(
// CHECK: llvm.call @msamp_flush_overflow(
// CHECK: llvm.call @msamp_flush_max(

// 8 * class + phase: what is not there is passed over.
// CHECK: llvm.func @msamp_run_kernel(
// CHECK: scf.index_switch
// CHECK-NEXT: case 10 {
// CHECK-NEXT: llvm.call @k(
// CHECK: case 11 {
// CHECK-NEXT: llvm.call @look(
// CHECK: default {
// CHECK-NEXT: llvm.call @msamp_advance(

// Nothing is settled.
// CHECK: llvm.func @msamp_settle(%{{.*}}: !llvm.ptr, %{{.*}}: i32) -> i32 {
// CHECK: scf.index_switch
// CHECK-NEXT: default {
// CHECK-NEXT: arith.constant 1 : i32

// CHECK: gpu.module @sm_100 [#nvvm.target<O = 3, chip = "sm_100">]
// CHECK-SAME: msamp.native_fp8
// CHECK-SAME: msamp.wants_cubin
// CHECK: llvm.func @msamp_step(

// PTX alone, for all chips from here on.
// CHECK: gpu.module @sm_90 [#nvvm.target<O = 3, chip = "sm_90"{{.*}}>]
// CHECK-NOT: msamp.wants_cubin
// CHECK-SAME: msamp.threads = 128 : i32}
// CHECK: llvm.func @msamp_step(
// CHECK-NOT: gpu.module
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
  msamp.kernel @k class(@c) phase(store) {
    %amax = msamp.uniform amax "weight" : f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f8E4M3FN : f32, f32 -> f32
    %p = msamp.load "weight" : f16
    %x = msamp.decode %p : f16 -> f32
    %y = math.fma %x, %scale, %x : f32
    %q = msamp.encode saturate %y : f32 -> f8E4M3FN
    msamp.store %q to "grad" : f8E4M3FN
    %bits = arith.bitcast %y : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %lost = msamp.count_loss flushed %y as %q : f8E4M3FN -> i32
    %losses = msamp.reduce sum %lost scope(tensor) as flushed of "weight" : i32
    %hash = msamp.hash %q : f8E4M3FN -> i64
    %sum = msamp.reduce sum %hash scope(tensor) as fingerprint : i64
  }
  msamp.kernel @look class(@c) phase(inspect) {
    %p = msamp.load "grad" : f8E4M3FN
    %x = msamp.decode %p : f8E4M3FN -> f32
    %bits = arith.bitcast %x : f32 to i32
    %mask = arith.constant 2147483647 : i32
    %magnitude = arith.andi %bits, %mask : i32
    %max = msamp.reduce max %magnitude scope(all) as amax of "grad" : i32
  }
}
