// SGD with momentum as PyTorch defines it: the first step sets the momentum buffer
// to the gradient, without damping; later ones blend.
//
//   grad   = grad + weight_decay * param
//   buffer = step == 1 ? grad : momentum * buffer + (1 - dampening) * grad
//   param  = param - lr * (nesterov ? grad + momentum * buffer : buffer)
//
// Without momentum the buffer equals the gradient and the step is plain SGD.
msamp.optimizer @sgd
    states(momentum_buffer : signed)
    hyper(lr = 1.0e-3 in [0.0, inf), momentum = 0.0 in [0.0, inf),
          dampening = 0.0 in [0.0, inf), weight_decay = 0.0 in [0.0, inf),
          nesterov = 0.0 in [0.0, 2.0), maximize = 0.0 in [0.0, 2.0))
scalars(%step: i64, %lr: f64, %momentum: f64, %dampening: f64,
        %weight_decay: f64, %nesterov: f64, %maximize: f64) {
  %one = arith.constant 1.0 : f64
  %zero = arith.constant 0.0 : f64
  %minus_one = arith.constant -1.0 : f64
  %first_step = arith.constant 1 : i64
  %descend = arith.cmpf oeq, %maximize, %zero : f64
  %sign = arith.select %descend, %one, %minus_one : f64
  %is_first = arith.cmpi eq, %step, %first_step : i64
  %no_momentum = arith.cmpf oeq, %momentum, %zero : f64
  %undamped = arith.subf %one, %dampening : f64
  // Damping counts from the second step on, and only with momentum.
  %later = arith.select %is_first, %one, %undamped : f64
  %blend = arith.select %no_momentum, %one, %later : f64
  %keep = arith.select %is_first, %zero, %momentum : f64
  msamp.yield %sign, %weight_decay, %keep, %blend, %momentum, %nesterov, %lr
      : f64, f64, f64, f64, f64, f64, f64
}
body(%param: f32, %grad: f32, %buffer: f32, %sign: f32, %decay: f32, %keep: f32,
     %blend: f32, %momentum: f32, %nesterov: f32, %lr: f32) {
  %zero = arith.constant 0.0 : f32
  %plain = arith.mulf %grad, %sign : f32
  %l2 = arith.mulf %decay, %param : f32
  %decayed = arith.addf %plain, %l2 : f32
  %has_decay = arith.cmpf une, %decay, %zero : f32
  %g = arith.select %has_decay, %decayed, %plain : f32
  // A stale buffer must not enter where nothing of it is kept.
  %kept = arith.mulf %keep, %buffer : f32
  %added = arith.mulf %blend, %g : f32
  %blended = arith.addf %kept, %added : f32
  %keeps = arith.cmpf une, %keep, %zero : f32
  %buffer1 = arith.select %keeps, %blended, %added : f32
  %ahead = arith.mulf %momentum, %buffer1 : f32
  %look_ahead = arith.addf %g, %ahead : f32
  %is_nesterov = arith.cmpf une, %nesterov, %zero : f32
  %direction = arith.select %is_nesterov, %look_ahead, %buffer1 : f32
  %update = arith.mulf %lr, %direction : f32
  %param1 = arith.subf %param, %update : f32
  msamp.yield %param1, %buffer1 : f32, f32
}
