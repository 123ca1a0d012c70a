// Launches that earlier passes should have prepared, and architectures that there is no
// code for, are refused.
// RUN: msamp-opt %s --convert-msamp-to-gpu=arch=sm_90a --split-input-file --verify-diagnostics
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_75 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_90a,sm_52 2>&1 | FileCheck %s --check-prefix=SECOND
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=gfx90a 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not msamp-opt %S/Inputs/empty-launch.mlir --convert-msamp-to-gpu=arch=sm_ 2>&1 | FileCheck %s --check-prefix=NUMBER

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
