// Updates that earlier passes should have prepared are refused, with the pass to run.
// RUN: msamp-opt %s --msamp-expand-wrapper --split-input-file --verify-diagnostics

func.func @one_tensor(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{updates a single tensor; run msamp-pack-updates first}}
  %0 = msamp.wrapped_update @plain weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

func.func @optimizer_is_not_resolved(%w: !msamp.bundle<@m, weight>, %g: !msamp.bundle<@m, grad>) {
  // expected-error @below {{optimizer @sgd is not defined; run msamp-resolve-optimizers first}}
  %0 = msamp.wrapped_update @sgd weight(%w : !msamp.bundle<@m, weight>) grad(%g : !msamp.bundle<@m, grad>)
  return
}
