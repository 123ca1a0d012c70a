// AdamW: decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), with
// PyTorch's order of operations. eps is added after the bias correction.
//
//   param  = param * (1 - lr * weight_decay)
//   first  = beta1 * first  + (1 - beta1) * grad
//   second = beta2 * second + (1 - beta2) * grad^2
//   param  = param - lr / (1 - beta1^step) * first
//                    / (sqrt(second) / sqrt(1 - beta2^step) + eps)
msamp.optimizer @adamw
    states(first_moment : signed, second_moment : nonnegative)
    hyper(lr = 1.0e-3 in [0.0, inf), beta1 = 0.9 in [0.0, 1.0),
          beta2 = 0.999 in [0.0, 1.0), eps = 1.0e-8 in [0.0, inf),
          weight_decay = 1.0e-2 in [0.0, inf), maximize = 0.0 in [0.0, 2.0))
scalars(%step: i64, %lr: f64, %beta1: f64, %beta2: f64, %eps: f64,
        %weight_decay: f64, %maximize: f64) {
  %one = arith.constant 1.0 : f64
  %zero = arith.constant 0.0 : f64
  %minus_one = arith.constant -1.0 : f64
  %descend = arith.cmpf oeq, %maximize, %zero : f64
  %sign = arith.select %descend, %one, %minus_one : f64
  %rate = arith.mulf %lr, %weight_decay : f64
  %keep = arith.subf %one, %rate : f64
  %one_minus_beta1 = arith.subf %one, %beta1 : f64
  %signed_one_minus_beta1 = arith.mulf %sign, %one_minus_beta1 : f64
  %one_minus_beta2 = arith.subf %one, %beta2 : f64
  %beta1_power = msamp.powi %beta1, %step : f64
  %beta2_power = msamp.powi %beta2, %step : f64
  %correction1 = arith.subf %one, %beta1_power : f64
  %correction2 = arith.subf %one, %beta2_power : f64
  %step_size = arith.divf %lr, %correction1 : f64
  %root2 = math.sqrt %correction2 : f64
  %inverse_root2 = arith.divf %one, %root2 : f64
  msamp.yield %keep, %beta1, %signed_one_minus_beta1, %beta2, %one_minus_beta2,
              %step_size, %inverse_root2, %eps
      : f64, f64, f64, f64, f64, f64, f64, f64
}
body(%param: f32, %grad: f32, %first: f32, %second: f32, %keep: f32, %beta1: f32,
     %signed_one_minus_beta1: f32, %beta2: f32, %one_minus_beta2: f32,
     %step_size: f32, %inverse_root2: f32, %eps: f32) {
  %decayed = arith.mulf %param, %keep : f32
  %first_kept = arith.mulf %beta1, %first : f32
  %first_new = arith.mulf %signed_one_minus_beta1, %grad : f32
  %first1 = arith.addf %first_kept, %first_new : f32
  %square = arith.mulf %grad, %grad : f32
  %second_kept = arith.mulf %beta2, %second : f32
  %second_new = arith.mulf %one_minus_beta2, %square : f32
  %second1 = arith.addf %second_kept, %second_new : f32
  %root = math.sqrt %second1 : f32
  %corrected = arith.mulf %root, %inverse_root2 : f32
  %denominator = arith.addf %corrected, %eps : f32
  %numerator = arith.mulf %step_size, %first1 : f32
  %update = arith.divf %numerator, %denominator : f32
  %param1 = arith.subf %decayed, %update : f32
  msamp.yield %param1, %first1, %second1 : f32, f32, f32
}
