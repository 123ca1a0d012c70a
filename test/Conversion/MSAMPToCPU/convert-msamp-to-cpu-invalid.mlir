// Launches that earlier passes should have prepared are refused, with the pass to run.
// RUN: msamp-opt %s --convert-msamp-to-cpu --split-input-file --verify-diagnostics

msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
// expected-error @below {{has no schedule; run msamp-split-phases first}}
msamp.launch @unphased layout(@m) optimizer(@plain) {
}

// -----

msamp.layout @m {
}
msamp.optimizer @plain states() hyper()
scalars(%step: i64) {
  msamp.yield
} body(%param: f32, %grad: f32) {
  msamp.yield %param : f32
}
msamp.launch @first layout(@m) optimizer(@plain) schedule(two_phase) {
}
// expected-error @below {{is a second launch; a plan holds one}}
msamp.launch @second layout(@m) optimizer(@plain) schedule(two_phase) {
}
