// Kernels take a root and a division for an amax only where a bound says that the value
// may be the largest; the amax is exact all the same. Here the bound's own arithmetic
// leaves f32: in the first run sqrt(x) * factor underflows and the quotient is infinite,
// in the second numerator / sqrt(x) does.
// REQUIRES: x86_64
// RUN: rm -rf %t && mkdir %t
// RUN: %python -c "import sys; sys.path.insert(0, '%utils'); import safetensors_io as st, struct; [st.write(sys.argv[1] + name, {'w': st.Tensor('F32', (64,), struct.pack('<64f', *([2.0 ** a] * 32 + [2.0 ** b] * 32)))}) for name, a, b in (('params1', -10, -60), ('grads1', 0, -30), ('params2', -130, -120), ('grads2', 30, 30))]" %t/
// RUN: msamp-compile %s -o %t/step
// RUN: sh -c 'for backend in cpu reference; do msamp-run %t/step --backend=$backend --hyper factor=7.52316384526264e-37 --params %t/params1 --grads %t/grads1 --save %t/$backend.1 && msamp-run %t/step --backend=$backend --hyper factor=7.888609052210118e-31 --params %t/params2 --grads %t/grads2 --save %t/$backend.2 || exit 1; done' > %t/log
// RUN: cmp %t/cpu.1 %t/reference.1
// RUN: cmp %t/cpu.2 %t/reference.2

msamp.optimizer @quotient states(s : signed) hyper(factor = 0.5 in [0.0, inf))
scalars(%step: i64, %factor: f64) {
  %zero = arith.constant 0.0 : f64
  msamp.yield %factor, %zero : f64, f64
} body(%param: f32, %grad: f32, %s: f32, %factor: f32, %addend: f32) {
  %square = arith.mulf %grad, %grad : f32
  %root = math.sqrt %square : f32
  %scaled = arith.mulf %root, %factor : f32
  %denominator = arith.addf %scaled, %addend : f32
  %quotient = arith.divf %param, %denominator : f32
  msamp.yield %param, %quotient : f32, f32
}
msamp.layout @m {
  msamp.storage_class @c {
    weight = #msamp.storage<f32>, grad = #msamp.storage<f32>,
    s = #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>}
  msamp.tensor "w" : tensor<64xf32> class(@c)
}
func.func @step(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>, %s: !msamp.bundle<@m, s>)
    -> (!msamp.bundle<@m, weight>, !msamp.bundle<@m, s>) {
  %0:2 = msamp.wrapped_update @quotient weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
      states(%s : !msamp.bundle<@m, s>)
  return %0#0, %0#1 : !msamp.bundle<@m, weight>, !msamp.bundle<@m, s>
}
