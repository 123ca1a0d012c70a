// Kernels that two phases cannot execute are refused.
// RUN: msamp-opt %s --msamp-split-phases --split-input-file --verify-diagnostics

msamp.layout @m {
  msamp.storage_class @a
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @reduction_of_a_reduction layout(@m) optimizer(@plain) {
  msamp.kernel @k class(@a) {
    %w = msamp.load "weight" : f32
    %bits = arith.bitcast %w : f32 to i32
    %max = msamp.reduce max %bits scope(tensor) as amax of "weight" : i32
    %difference = arith.subi %bits, %max : i32
    // expected-error @below {{depends on another reduction over elements; a third phase is not supported}}
    %second = msamp.reduce max %difference scope(tensor) as amax of "master_weight" : i32
    %amax = arith.bitcast %second : i32 to f32
    msamp.store %amax to "weight" : f32
  }
}

// -----

msamp.layout @m {
  msamp.storage_class @a
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @result_that_is_not_handed_on layout(@m) optimizer(@plain) {
  msamp.kernel @k class(@a) {
    %w = msamp.load "weight" : f32
    %bits = arith.bitcast %w : f32 to i32
    // expected-error @below {{has a result in use, but 'flushed' is not handed from phase to phase; only an amax is}}
    %sum = msamp.reduce sum %bits scope(tensor) as flushed of "weight" : i32
    %x = arith.bitcast %sum : i32 to f32
    msamp.store %x to "weight" : f32
  }
}
