// Each kernel becomes one function for each instruction set: a loop over whole vectors
// and one over the rest, uniform values outside of both; the optimizer's scalars
// become one function in f64. Only decode and encode are left to later passes.
// RUN: msamp-opt %s --convert-msamp-to-cpu | FileCheck %s
// RUN: msamp-opt %s --convert-msamp-to-cpu | sed -n '/module @cpu/,$p' | FileCheck %s --check-prefix=LEFT

// LEFT-NOT: msamp.{{(load|store|uniform|reduce|hash|compute_scale|powi|kernel|launch)}}
// LEFT: msamp.decode
// LEFT: msamp.encode
// LEFT-NOT: msamp.{{(load|store|uniform|reduce|hash|compute_scale|powi|kernel|launch)}}

msamp.layout @m {
  msamp.storage_class @c
}
msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf), beta = 0.5 in [0.0, 1.0))
scalars(%step: i64, %lr: f64, %beta: f64) {
  %power = msamp.powi %beta, %step : f64
  msamp.yield %lr, %power : f64, f64
} body(%param: f32, %grad: f32, %lr: f32, %power: f32) {
  msamp.yield %param : f32
}

// The launch stays, as the plan's table of contents.
// CHECK: msamp.launch @step
// CHECK-LABEL: module @cpu {

// step, hyper-parameters, results; rounded once on the way out.
// CHECK: llvm.func @plain_scalars(%[[STEP:.*]]: i64, %[[HYPER:.*]]: !llvm.ptr, %[[OUT:.*]]: !llvm.ptr)
// CHECK-SAME: target_cpu = "x86-64"
// CHECK: %[[LR:.*]] = llvm.load %{{.*}} : !llvm.ptr -> f64
// CHECK: %[[BETA:.*]] = llvm.load %{{.*}} : !llvm.ptr -> f64
// CHECK: scf.while
// CHECK-DAG: %[[LR32:.*]] = arith.truncf %[[LR]] : f64 to f32
// CHECK: llvm.store %[[LR32]]
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: llvm.return

// Baseline: 8 lanes, no native f16, fma in exact steps.
// CHECK-LABEL: llvm.func @k_x86_64(
// CHECK-SAME: %[[OPERANDS:[a-z0-9]+]]: !llvm.ptr, %[[UNIFORMS:[a-z0-9]+]]: !llvm.ptr, %[[FIRST:[a-z0-9]+]]: i64, %[[COUNT:[a-z0-9]+]]: i64, %[[RESULTS:[a-z0-9]+]]: !llvm.ptr
// CHECK-NOT: msamp.native_f16
// CHECK-SAME: target_cpu = "x86-64"
// CHECK: %[[UA:.*]] = llvm.getelementptr %[[UNIFORMS]]
// CHECK: llvm.load %[[UA]]
// CHECK: %[[WHOLE:.*]] = arith.andi %[[COUNT]],
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[WHOLE]] step %{{.*}} iter_args
// CHECK: llvm.load %{{.*}} {alignment = 2 : i64} : !llvm.ptr -> vector<8xi16>
// CHECK: msamp.decode %{{.*}} : vector<8xf16> -> vector<8xf32>
// CHECK-NOT: math.fma
// CHECK: arith.mulf %{{.*}} : vector<8xf64>
// CHECK: msamp.encode saturate %{{.*}} : vector<8xf32> -> vector<8xf8E4M3FN>
// CHECK-DAG: llvm.store %{{.*}} {alignment = 1 : i64} : vector<8xi8>, !llvm.ptr
// CHECK-DAG: arith.maxui %{{.*}} : vector<8xi32>
// CHECK: vector.reduction <maxui>
// CHECK: vector.reduction <add>
// CHECK: scf.for %{{.*}} = %[[WHOLE]] to %[[COUNT]] step
// CHECK: msamp.decode %{{.*}} : f16 -> f32
// CHECK: msamp.encode saturate %{{.*}} : f32 -> f8E4M3FN
// CHECK: llvm.store %{{.*}} : i8, !llvm.ptr
// CHECK: llvm.return

// CHECK-LABEL: llvm.func @k_x86_64_v3(
// CHECK-SAME: msamp.native_f16
// CHECK-SAME: target_cpu = "x86-64-v3"
// CHECK: msamp.decode %{{.*}} : vector<16xf16> -> vector<16xf32>
// CHECK: math.fma %{{.*}} : vector<16xf32>
// CHECK: math.fma %{{.*}} : f32

// CHECK-LABEL: llvm.func @k_x86_64_v4(
// CHECK-SAME: msamp.native_f16
// CHECK-SAME: target_cpu = "x86-64-v4"
// CHECK: msamp.decode %{{.*}} : vector<16xf16> -> vector<16xf32>
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
    %hash = msamp.hash %q : f8E4M3FN -> i64
    %sum = msamp.reduce sum %hash scope(tensor) as fingerprint : i64
  }
}
