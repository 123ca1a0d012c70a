// What the speculative schedule cannot be had for is an error that says why.
// RUN: msamp-opt %s --msamp-split-phases=schedule=speculative --split-input-file --verify-diagnostics

msamp.layout @m {
  msamp.storage_class @a {weight = #msamp.storage<f16, scaling = <per_tensor, current>>}
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @no_bound layout(@m) optimizer(@plain) {
  // expected-error @below {{schedule speculative is asked for, but class @a scales 'weight' by its amax, of which there is no bound; use two-phase, or delayed scaling}}
  msamp.kernel @k class(@a) {
    %mask = arith.constant 0x7FFFFFFF : i32
    %code = msamp.load "weight" : f16
    %value = msamp.decode %code : f16 -> f32
    %inverse = msamp.uniform scale_inv "weight" : f32
    %w = arith.mulf %value, %inverse : f32
    // The root of what may be negative, over which nothing is known.
    // expected-note @below {{'math.sqrt' has no bound}}
    %root = math.sqrt %w : f32
    %ratio = arith.mulf %w, %root : f32
    %bits = arith.bitcast %ratio : f32 to i32
    %magnitude = arith.andi %bits, %mask : i32
    %max = msamp.reduce max %magnitude scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %scaled = arith.mulf %ratio, %scale : f32
    %stored = msamp.encode saturate %scaled : f32 -> f16
    msamp.store %stored to "weight" : f16
  }
}

// -----

msamp.layout @m {
  msamp.storage_class @a {weight = #msamp.storage<f16, scaling = <per_tensor, current>>}
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @divisor_without_a_root layout(@m) optimizer(@plain) {
  // expected-error @below {{class @a scales 'weight' by its amax, of which there is no bound}}
  msamp.kernel @k class(@a) {
    %mask = arith.constant 0x7FFFFFFF : i32
    %code = msamp.load "weight" : f16
    %value = msamp.decode %code : f16 -> f32
    %inverse = msamp.uniform scale_inv "weight" : f32
    %w = arith.mulf %value, %inverse : f32
    %g = msamp.load "grad" : f32
    // expected-note @below {{'arith.divf' has no bound}}
    %ratio = arith.divf %w, %g : f32
    %bits = arith.bitcast %ratio : f32 to i32
    %magnitude = arith.andi %bits, %mask : i32
    %max = msamp.reduce max %magnitude scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %scaled = arith.mulf %ratio, %scale : f32
    %stored = msamp.encode saturate %scaled : f32 -> f16
    msamp.store %stored to "weight" : f16
  }
}

// -----

msamp.process_group @world ranks(2)
msamp.layout @m sharding(fsdp2 over @world) {
  msamp.storage_class @a {
    weight = #msamp.storage<f16, scaling = <per_tensor, current>>,
    grad = #msamp.storage<f32>, wire = #msamp.storage<f32>}
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @ranks_share_the_step layout(@m) optimizer(@plain) {
  // expected-error @below {{schedule speculative is asked for, but ranks share the step; there two-phase costs no more, since links between ranks bound it}}
  msamp.kernel @k class(@a) {
    %mask = arith.constant 0x7FFFFFFF : i32
    %code = msamp.load "weight" : f16
    %w = msamp.decode %code : f16 -> f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %amax = arith.bitcast %max : i32 to f32
    %old = msamp.uniform old_scale "weight" : f32
    %scale = msamp.compute_scale %amax, %old for f16 : f32, f32 -> f32
    %scaled = arith.mulf %w, %scale : f32
    %stored = msamp.encode saturate %scaled : f32 -> f16
    msamp.store %stored to "weight" : f16
  }
}

// -----

msamp.layout @m {
  msamp.storage_class @a {weight = #msamp.storage<f32>}
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{schedule speculative is asked for, but every scale is known before the step: one pass does all}}
msamp.launch @nothing_to_settle layout(@m) optimizer(@plain) {
  msamp.kernel @k class(@a) {
    %w = msamp.load "weight" : f32
    msamp.store %w to "weight" : f32
  }
}
