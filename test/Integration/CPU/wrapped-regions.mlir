// A hand-written step: gradient clipped by value in `pre`, a moving average of the
// parameter in `post`, over a library optimizer. Compiled code and the reference
// agree bit for bit, and the regions take effect.
// REQUIRES: x86_64
// RUN: msamp-compile %s -o %t.msplan
// RUN: msamp-run %t.msplan --params %digits/params.safetensors --grads '%digits/grads/{step}.safetensors' --steps 10 --save %t.cpu > /dev/null
// RUN: msamp-run %t.msplan --params %digits/params.safetensors --grads '%digits/grads/{step}.safetensors' --steps 10 --backend=reference --save %t.reference > /dev/null
// RUN: cmp %t.cpu %t.reference
// RUN: msamp-compile --optimizer=adamw --params %digits/params.safetensors -o %t.plain.msplan
// RUN: msamp-run %t.plain.msplan --params %digits/params.safetensors --grads '%digits/grads/{step}.safetensors' --steps 10 --save %t.plain > /dev/null
// RUN: not cmp -s %t.cpu %t.plain
// RUN: msamp-plan-dump %t.msplan | FileCheck %s
// CHECK: optimizer adamw_wrapped, schedule two_phase, 4 tensors, 4810 parameters

!weight = !msamp.bundle<@model, weight>
!master = !msamp.bundle<@model, master_weight>
!grad = !msamp.bundle<@model, grad>
!first = !msamp.bundle<@model, first_moment>
!second = !msamp.bundle<@model, second_moment>

msamp.layout @model {
  msamp.tensor "fc1.weight" : tensor<64x64xf32>
  msamp.tensor "fc1.bias" : tensor<64xf32>
  msamp.tensor "fc2.weight" : tensor<10x64xf32>
  msamp.tensor "fc2.bias" : tensor<10xf32>
}
func.func @step(%w: !weight, %p: !master, %g: !grad, %m: !first, %v: !second)
    -> (!weight, !master, !first, !second) {
  %0:4 = msamp.wrapped_update @adamw weight(%w : !weight)
      master_weight(%p : !master) grad(%g : !grad)
      states(%m, %v : !first, !second)
  pre {
  ^bb0(%param: f32, %grad: f32):
    %limit = arith.constant 1.0e-3 : f32
    %lower = arith.constant -1.0e-3 : f32
    %below = arith.minimumf %grad, %limit : f32
    %clipped = arith.maximumf %below, %lower : f32
    msamp.yield %clipped : f32
  } post {
  ^bb0(%before: f32, %after: f32):
    %keep = arith.constant 0.25 : f32
    %change = arith.subf %before, %after : f32
    %average = math.fma %keep, %change, %after : f32
    msamp.yield %average : f32
  }
  return %0#0, %0#1, %0#2, %0#3 : !weight, !master, !first, !second
}
