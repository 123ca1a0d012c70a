// A schedule that does not exist is an error that names it and those that do.
// RUN: not msamp-opt %s --msamp-split-phases=schedule=three 2>&1 | FileCheck %s
// CHECK: error: unknown schedule 'three', expected auto, one-pass, two-phase or speculative
module {
}
