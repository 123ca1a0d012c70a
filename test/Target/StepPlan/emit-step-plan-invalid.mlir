// Modules that make no plan are refused, with the op that stands in the way.
// RUN: msamp-opt %s --msamp-emit-step-plan=output=%t.msplan --split-input-file --verify-diagnostics

// expected-error @below {{has 0 launches, expected one optimizer step}}
module @no_launch {
}

// -----

// expected-error @below {{has 2 launches, expected one optimizer step}}
module @two_launches {
msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @first layout(@m) optimizer(@plain) schedule(two_phase) {
}
msamp.launch @second layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
// expected-error @below {{has no code; run convert-msamp-to-cpu or convert-msamp-to-gpu first}}
msamp.launch @not_lowered layout(@m) optimizer(@plain) schedule(two_phase) {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
// expected-error @below {{has no schedule; run msamp-split-phases first}}
msamp.launch @not_split layout(@m) optimizer(@plain) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @op_left_in_cpu layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
  llvm.func @plain_scalars() {
    // expected-error @below {{'arith.constant' is left in @cpu, which must be lowered to the LLVM dialect first}}
    %0 = arith.constant 1 : i32
    llvm.return
  }
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
}
msamp.launch @decode_left_in_cpu layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
  llvm.func @plain_scalars(%x: f16) {
    // expected-error @below {{'msamp.decode' is left in @cpu, which must be lowered to the LLVM dialect first}}
    %0 = msamp.decode %x : f16 -> f32
    llvm.return
  }
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  // expected-error @below {{@g does not set "lr"; run msamp-infer-storage first}}
  msamp.param_group @g
}
msamp.launch @group_is_not_complete layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  // expected-error @below {{"a" has no class or group; run msamp-infer-storage first}}
  msamp.tensor "a" : tensor<4xf32>
}
msamp.launch @tensor_is_not_complete layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, current>>, grad = #msamp.storage<f32>}
  msamp.param_group @g {lr = 0.1 : f64}
  // expected-note @below {{by tensor "a"}}
  msamp.tensor "a" : tensor<4xf32> class(@c) group(@g)
  // expected-error @below {{tensor "a.scale_inv" would be saved with the name 'a.scale_inv', which is taken}}
  msamp.tensor "a.scale_inv" : tensor<4xf32> class(@c) group(@g)
}
msamp.launch @scale_inv_collides layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f16, scaling = <per_tensor, delayed, history = 4>>, grad = #msamp.storage<f32>}
  msamp.param_group @g {lr = 0.1 : f64}
  // expected-note @below {{by tensor "a"}}
  msamp.tensor "a" : tensor<4xf32> class(@c) group(@g)
  // expected-error @below {{tensor "a.amax_history" would be saved with the name 'a.amax_history', which is taken}}
  msamp.tensor "a.amax_history" : tensor<4xf32> class(@c) group(@g)
}
msamp.launch @history_collides layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.param_group @g {lr = 0.1 : f64}
  // expected-note @below {{by tensor "a"}}
  msamp.tensor "a" : tensor<4xf32> class(@c) group(@g)
  // expected-error @below {{tensor "a.step" would be saved with the name 'a.step', which is taken}}
  msamp.tensor "a.step" : tensor<4xf32> class(@c) group(@g)
}
msamp.launch @step_collides layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}

// -----

msamp.optimizer @plain states() hyper(lr = 0.1 in [0.0, inf))
scalars(%step: i64, %lr: f64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.layout @m {
  msamp.storage_class @c {weight = #msamp.storage<f32>, grad = #msamp.storage<f32>}
  msamp.param_group @g {lr = 0.1 : f64}
  // expected-note @below {{by tensor "a.grad"}}
  msamp.tensor "a.grad" : tensor<4xf32> class(@c) group(@g)
  // expected-error @below {{tensor "a" would be saved with the name 'a.grad', which is taken}}
  msamp.tensor "a" : tensor<4xf32> class(@c) group(@g)
}
msamp.launch @role_collides layout(@m) optimizer(@plain) schedule(two_phase) {
}
module @cpu {
}
