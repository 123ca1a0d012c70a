// A plan that cannot be written is an error that names the path and the reason, and
// leaves nothing behind; a good plan that is there stays as it is.
// RUN: rm -rf %t.dir && mkdir -p %t.dir/folder
// RUN: not msamp-opt %s --msamp-emit-step-plan -o /dev/null 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not msamp-opt %s --msamp-emit-step-plan=output=%t.dir/missing/a.msplan -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not msamp-opt %s --msamp-emit-step-plan=output=%t.dir/folder -o /dev/null 2>&1 | FileCheck %s --check-prefix=FOLDER
// RUN: msamp-opt %s --msamp-emit-step-plan=output=%t.dir/a.msplan -o /dev/null
// RUN: cp %t.dir/a.msplan %t.good
// RUN: not msamp-opt %S/Inputs/no-launch.mlir --msamp-emit-step-plan=output=%t.dir/a.msplan -o /dev/null
// RUN: cmp %t.dir/a.msplan %t.good
// RUN: ls -a %t.dir | FileCheck %s --check-prefix=FILES

// NONE: error: msamp-emit-step-plan needs an 'output' path
// MISSING: error: cannot write {{.*}}/missing/a.msplan: No such file or directory
// FOLDER: error: cannot write {{.*}}/folder: not a regular file

// FILES: {{^}}..{{$}}
// FILES-NEXT: {{^}}a.msplan{{$}}
// FILES-NEXT: {{^}}folder{{$}}
// FILES-NOT: {{.}}

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @step layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
  llvm.func @plain_scalars(%step: i64, %hyper: !llvm.ptr, %results: !llvm.ptr) {
    llvm.return
  }
}
