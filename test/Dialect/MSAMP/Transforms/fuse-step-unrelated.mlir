// Functions without msamp ops are left alone, next to a step and without one.
// RUN: msamp-opt %s --msamp-fuse-step | FileCheck %s

// CHECK-LABEL: func.func @other
// CHECK-NEXT: %[[S:.*]] = arith.addf
// CHECK-NEXT: return %[[S]]
func.func @other(%a: f32) -> f32 {
  %0 = arith.addf %a, %a : f32
  return %0 : f32
}

// CHECK: func.func private @declared(!msamp.bundle<@m, weight>)
func.func private @declared(!msamp.bundle<@m, weight>)
