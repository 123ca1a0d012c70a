// Names that are no optimizer are refused.
// RUN: msamp-opt %s --msamp-resolve-optimizers --split-input-file --verify-diagnostics

func.func @wrapped_update_C1_unknown(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{unknown optimizer @adagrad; the library has adam, adamw, sgd}}
  %0 = msamp.wrapped_update @adagrad weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}

// -----

// expected-note @below {{it is this 'func.func'}}
func.func private @sgd()
func.func @wrapped_update_C1_no_optimizer(%w: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @below {{@sgd is not an optimizer}}
  %0 = msamp.wrapped_update @sgd weight(%w : tensor<4xf32>) grad(%g : tensor<4xf32>)
  return
}
