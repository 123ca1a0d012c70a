// What cannot be taken to whole tensors is refused, with both places.
// RUN: msamp-opt %s --msamp-lift-collectives --split-input-file --verify-diagnostics

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @two_groups(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-note @below {{whose gradient is reduced here}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  // expected-note @below {{and this one's here}}
  %n = msamp.all_reduce %h over @tp : tensor<4xf32> -> tensor<4xf32>
  // expected-error @below {{'msamp.wrapped_update' op is sharded otherwise than another update of the function}}
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%n : tensor<4xf32>)
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @one_of_two(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-note @below {{whose gradient is reduced here}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  // expected-error @below {{'msamp.wrapped_update' op is sharded otherwise than another update of the function}}
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%h : tensor<4xf32>)
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @not_gathered(%w: tensor<2xf32>, %g: tensor<4xf32>) -> tensor<2xf32> {
  %m = msamp.reduce_scatter %g over @dp : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'msamp.wrapped_update' op gives a rank's part of a weight that is not gathered}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<2xf32>) grad(%m : tensor<2xf32>)
  // expected-note @below {{but used here}}
  return %0 : tensor<2xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @computed_weight(%w: tensor<2xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %n = arith.negf %w : tensor<2xf32>
  %m = msamp.reduce_scatter %g over @dp : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'msamp.wrapped_update' op has an operand of type 'tensor<2xf32>' that is no argument of the function, which it alone uses}}
  %0 = msamp.wrapped_update @plain name "a" weight(%n : tensor<2xf32>) grad(%m : tensor<2xf32>)
  %1 = msamp.all_gather %0 over @dp : tensor<2xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @mean_elsewhere(%w: tensor<4xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-error @below {{'msamp.all_reduce' op has other users than an update; what it gives is nowhere else}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  return %0, %m : tensor<4xf32>, tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
func.func @no_update(%g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'msamp.all_reduce' op is not around an update; a step has no other collectives on tensors}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{'func.func' op @called takes a rank's parts of tensors from a caller, who would have to give whole ones}}
func.func @called(%w: tensor<2xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %m = msamp.reduce_scatter %g over @dp : tensor<4xf32> -> tensor<2xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<2xf32>) grad(%m : tensor<2xf32>)
  %1 = msamp.all_gather %0 over @dp : tensor<2xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
func.func @caller(%w: tensor<2xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  // expected-note @below {{called here}}
  %0 = call @called(%w, %g) : (tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(4)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @gathered_elsewhere(%w: tensor<2xf32>, %g: tensor<4xf32>) -> tensor<8xf32> {
  %m = msamp.reduce_scatter %g over @dp : tensor<4xf32> -> tensor<2xf32>
  // expected-note @below {{weight updated here}}
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<2xf32>) grad(%m : tensor<2xf32>)
  // expected-error @below {{'msamp.all_gather' op is over group @tp, but the gradient of this weight is reduced over @dp}}
  %1 = msamp.all_gather %0 over @tp : tensor<2xf32> -> tensor<8xf32>
  return %1 : tensor<8xf32>
}


// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(4)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @both_ways(%w: tensor<4xf32>, %v: tensor<2xf32>, %g: tensor<4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-note @below {{whose gradient is reduced here}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  // expected-note @below {{and this one's here}}
  %n = msamp.reduce_scatter %h over @dp : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'msamp.wrapped_update' op is sharded otherwise than another update of the function}}
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<2xf32>) grad(%n : tensor<2xf32>)
  %2 = msamp.all_gather %1 over @dp : tensor<2xf32> -> tensor<4xf32>
  return %0, %2 : tensor<4xf32>, tensor<4xf32>
}


// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(4)
msamp.optimizer @plain states(velocity) hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32, %velocity: f32) {
  msamp.yield %param, %velocity : f32, f32
}
func.func @state_elsewhere(%w: tensor<2xf32>, %s: tensor<2xf32>, %g: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  %m = msamp.reduce_scatter %g over @dp : tensor<4xf32> -> tensor<2xf32>
  // expected-error @below {{'msamp.wrapped_update' op gives a rank's part of a state that is not only returned}}
  %0:2 = msamp.wrapped_update @plain name "a" weight(%w : tensor<2xf32>) grad(%m : tensor<2xf32>) states(%s : tensor<2xf32>)
  %1 = msamp.all_gather %0#0 over @dp : tensor<2xf32> -> tensor<4xf32>
  // expected-note @below {{but used here}}
  %2 = arith.negf %0#1 : tensor<2xf32>
  return %1, %2 : tensor<4xf32>, tensor<2xf32>
}


// -----

msamp.process_group @dp ranks(2)
msamp.process_group @tp ranks(4)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{'func.func' op @branches has branches; a rank's step between collectives on tensors is straight}}
func.func @branches(%w: tensor<4xf32>, %g: tensor<4xf32>) -> tensor<4xf32> {
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  cf.br ^end(%0 : tensor<4xf32>)
^end(%1: tensor<4xf32>):
  return %1 : tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @mean_and_sum(%w: tensor<4xf32>, %v: tensor<4xf32>, %g: tensor<4xf32>, %h: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  // expected-note @below {{whose gradient is reduced here}}
  %m = msamp.all_reduce %g over @dp : tensor<4xf32> -> tensor<4xf32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<4xf32>) grad(%m : tensor<4xf32>)
  // expected-note @below {{and this one's here}}
  %n = msamp.all_reduce %h over @dp by sum : tensor<4xf32> -> tensor<4xf32>
  // expected-error @below {{'msamp.wrapped_update' op is sharded otherwise than another update of the function}}
  %1 = msamp.wrapped_update @plain name "b" weight(%v : tensor<4xf32>) grad(%n : tensor<4xf32>)
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

msamp.process_group @dp ranks(2)
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
func.func @largest(%w: tensor<f32>, %g: tensor<f32>) -> tensor<f32> {
  // expected-error @below {{'msamp.all_reduce' op is of a gradient, but reduces by max; gradients are reduced by mean or sum}}
  %m = msamp.all_reduce %g over @dp by max : tensor<f32> -> tensor<f32>
  %0 = msamp.wrapped_update @plain name "a" weight(%w : tensor<f32>) grad(%m : tensor<f32>)
  return %0 : tensor<f32>
}
