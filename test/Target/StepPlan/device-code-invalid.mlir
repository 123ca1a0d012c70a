// Device code that is not ready, or that lacks what the device library does not have, is
// refused with the op that stands in the way.
// RUN: msamp-opt %s --msamp-emit-step-plan=output=%t.msplan --split-input-file --verify-diagnostics

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
}
gpu.module @sm_90 [#nvvm.target<chip = "sm_90">] attributes {
    msamp.access_bytes = 16 : i32, msamp.blocks_per_sm = 1 : i32, msamp.chunk_elements = 2048 : i32,
    msamp.shared_bytes = 0 : i32, msamp.threads = 128 : i32} {
  llvm.func @not_lowered(%x: f32) {
    // expected-error @below {{'arith.addf' is left in @sm_90, which must be lowered to the LLVM and NVVM dialects first}}
    %0 = arith.addf %x, %x : f32
    llvm.return
  }
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
}
// expected-error @below {{has no nvvm target; convert-msamp-to-gpu sets one}}
gpu.module @sm_90 attributes {
    msamp.access_bytes = 16 : i32, msamp.blocks_per_sm = 1 : i32, msamp.chunk_elements = 2048 : i32,
    msamp.shared_bytes = 0 : i32, msamp.threads = 128 : i32} {
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
}
// The library calls back what each plan generates.
// expected-error @below {{calls 'msamp_}}
gpu.module @sm_90 [#nvvm.target<chip = "sm_90">] attributes {
    msamp.access_bytes = 16 : i32, msamp.blocks_per_sm = 1 : i32, msamp.chunk_elements = 2048 : i32,
    msamp.shared_bytes = 0 : i32, msamp.threads = 128 : i32} {
  llvm.func @msamp_step(%step: !llvm.ptr) attributes {nvvm.kernel} {
    llvm.return
  }
}
