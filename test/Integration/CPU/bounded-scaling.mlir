// The bounds that scales come from are found twice, by interval arithmetic in the kernels
// and by the reference on its program: bits of scales depend on both giving the
// same. Here the body says one product twice, and the square of it would have another
// bound than the product of two values that happen to be equal.
// REQUIRES: x86_64
// RUN: rm -rf %t && mkdir %t
// RUN: msamp-compile %s -o %t/step.msplan
// RUN: %python %S/../Inputs/make-step.py %utils %t/w 1 w:4,8
// RUN: msamp-run %t/step.msplan --params %t/w.params --grads %t/w.grads.1 --save %t/cpu > %t/cpu.log
// RUN: msamp-run %t/step.msplan --params %t/w.params --grads %t/w.grads.1 --save %t/reference --backend=reference > %t/reference.log
// RUN: cmp %t/cpu %t/reference

msamp.optimizer @squares states(s : signed) hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield %lr : f64
} body(%param: f32, %grad: f32, %s: f32, %lr: f32) {
  %a = arith.mulf %grad, %param : f32
  %b = arith.mulf %grad, %param : f32
  %square = arith.mulf %a, %b : f32
  %offset = arith.constant 100.0 : f32
  %s1 = arith.subf %square, %offset : f32
  %update = arith.mulf %lr, %grad : f32
  %new = arith.subf %param, %update : f32
  msamp.yield %new, %s1 : f32, f32
}
msamp.layout @m {
  msamp.storage_class @c {
    weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    s = #msamp.storage<f8E4M3FN, scaling = <per_tensor, bounded>>}
  msamp.tensor "w" : tensor<4x8xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, s>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, s>) {
  %0:2 = msamp.wrapped_update @squares weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
      states(%s : !msamp.bundle<@m, s>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, s>
}
