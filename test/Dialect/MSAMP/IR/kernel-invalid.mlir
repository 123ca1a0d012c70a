// Each constraint of launches, kernels and their ops has one smallest violation
// here.
// RUN: msamp-opt %s --split-input-file --verify-diagnostics

msamp.layout @model {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @launch_C1_holds_a_constant layout(@model) optimizer(@plain) {
  // expected-error @below {{'arith.constant' inside a launch, expected kernels only}}
  %0 = arith.constant 1.0 : f32
}

// -----

msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{layout @missing is not defined}}
msamp.launch @launch_C2_layout_is_not_defined layout(@missing) optimizer(@plain) {
}

// -----

msamp.layout @model {
}
// expected-error @below {{optimizer @missing is not defined}}
msamp.launch @launch_C2_optimizer_is_not_defined layout(@model) optimizer(@missing) {
}

// -----

// expected-error @below {{expects parent op 'msamp.launch'}}
msamp.kernel @outside_of_a_launch class(@matrix) {
}

// -----

func.func @load_outside_of_a_kernel() {
  // expected-error @below {{expects parent op 'msamp.kernel'}}
  %0 = msamp.load "weight" : f32
  return
}

// -----

msamp.layout @model {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @settle_C1_in_another_phase layout(@model) optimizer(@plain) {
  msamp.kernel @k class(@matrix) phase(reduce) {
    %0 = arith.constant 1.0 : f32
    // expected-error @below {{is outside a kernel of phase settle}}
    msamp.settle %0, %0 of "weight" for f16 otherwise reduce
  }
}

// -----

msamp.layout @model {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @settle_C2_asks_for_store layout(@model) optimizer(@plain) {
  msamp.kernel @k class(@matrix) phase(settle) {
    %0 = arith.constant 1.0 : f32
    // expected-error @below {{asks for phase 'store', expected narrow or reduce}}
    msamp.settle %0, %0 of "weight" for f16 otherwise store
  }
}

// -----

func.func @decode_C1_shapes_differ(%a: vector<4xf16>) {
  // expected-error @below {{requires the same shape for all operands and results}}
  %0 = msamp.decode %a : vector<4xf16> -> vector<2xf32>
  return
}

// -----

func.func @decode_C1_vector_to_scalar(%a: vector<1xf16>) {
  // expected-error @below {{requires the same shape for all operands and results}}
  %0 = msamp.decode %a : vector<1xf16> -> f32
  return
}

// -----

func.func @encode_C1_shapes_differ(%a: vector<4xf32>) {
  // expected-error @below {{requires the same shape for all operands and results}}
  %0 = msamp.encode saturate %a : vector<4xf32> -> vector<8xf16>
  return
}

// -----

func.func @encode_C1_scalar_to_vector(%a: f32) {
  // expected-error @below {{requires the same shape for all operands and results}}
  %0 = msamp.encode saturate %a : f32 -> vector<1xf16>
  return
}

// -----

func.func @encode_to_no_format(%a: f32) {
  // expected-error @below {{result #0 must be f8E4M3FN type or f8E5M2 type or 16-bit float or bfloat16 type or 32-bit float or vector}}
  %0 = msamp.encode saturate %a : f32 -> f64
  return
}

// -----

func.func @count_loss_outside_of_a_kernel(%x: f32, %q: f16) {
  // expected-error @below {{expects parent op 'msamp.kernel'}}
  %0 = msamp.count_loss flushed %x as %q : f16 -> i32
  return
}

// -----

msamp.layout @model {
  msamp.storage_class @c
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @count_loss_C1_kind layout(@model) optimizer(@plain) {
  msamp.kernel @k class(@c) {
    %v = msamp.load "weight" : f32
    %p = msamp.encode saturate %v : f32 -> f16
    // expected-error @below {{counts 'amax', expected flushed or saturated}}
    %0 = msamp.count_loss amax %v as %p : f16 -> i32
  }
}
