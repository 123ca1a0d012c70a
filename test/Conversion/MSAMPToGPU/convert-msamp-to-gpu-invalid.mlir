// Launches that earlier passes should have prepared, and architectures that there is no
// code for, are refused.
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_90a --split-input-file --verify-diagnostics
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_75 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_90a,sm_52 2>&1 | FileCheck %s --check-prefix=SECOND
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=gfx90a 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_ 2>&1 | FileCheck %s --check-prefix=NUMBER

// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu="arch=sm_90a access-bytes=8" 2>&1 | FileCheck %s --check-prefix=ACCESS
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu="arch=sm_90a threads=100" 2>&1 | FileCheck %s --check-prefix=THREADS
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu="arch=sm_90a stages=1" 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu="arch=sm_90a chunk-elements=256" 2>&1 | FileCheck %s --check-prefix=SMALL
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu="arch=sm_90a chunk-elements=3000" 2>&1 | FileCheck %s --check-prefix=ODD

// ACCESS: error: 'msamp.launch' op cannot be compiled for accesses of 8 bytes; 16 is least
// THREADS: error: 'msamp.launch' op cannot be compiled for blocks of 100 threads, expected a multiple of 32 up to 1024
// STAGES: error: 'msamp.launch' op cannot be compiled for 1 stages; 2 are the least
// SMALL: error: 'msamp.launch' op cannot be compiled for chunks of 256 elements, expected a power of two from 512 on
// ODD: error: 'msamp.launch' op cannot be compiled for chunks of 3000 elements, expected a power of two from 512 on

// OLD: empty-launch.mlir:[[#]]:1: error: 'msamp.launch' op cannot be compiled for 'sm_75'; sm_80 is the least
// SECOND: error: 'msamp.launch' op cannot be compiled for 'sm_52'; sm_80 is the least
// CHIP: error: 'msamp.launch' op cannot be compiled for 'gfx90a'; sm_80 is the least
// NUMBER: error: 'msamp.launch' op cannot be compiled for 'sm_'; sm_80 is the least

msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{has no schedule; run msamp-split-phases first}}
msamp.launch @unphased layout(@m) optimizer(@plain) {
}

// -----

msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-note @below {{which this op has}}
module @sm_90a {
}
// expected-error @below {{needs the name @sm_90a for its device code}}
msamp.launch @name_taken layout(@m) optimizer(@plain) schedule(two_phase) {
}

// -----

// The portable module's name too.
msamp.layout @m {
}
// expected-note @below {{which this op has}}
msamp.optimizer @sm_90 states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{needs the name @sm_90 for its device code}}
msamp.launch @portable_name_taken layout(@m) optimizer(@sm_90) schedule(two_phase) {
}
