// Writes the MLIR of an optimizer step from a list of tensors, so that nobody
// types 148 of them by hand.

#ifndef MSAMP_GENERATOR_STEPGENERATOR_H
#define MSAMP_GENERATOR_STEPGENERATOR_H

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace mlir::msamp {

struct StepRequest {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };

  /// A library optimizer's name, or FILE.mlir[@SYMBOL].
  std::string optimizer;
  OptLevel level = OptLevel::O3;
  std::vector<Tensor> tensors;
  /// Where the tensors come from; locations of diagnostics name it.
  std::string source;
  /// "lr=1e-2,weight_decay=0.01", for every group.
  std::string hyper;
  /// Where scales come from that formats do not say: of states, and of the
  /// rest. (Only states have bounds.)
  ScalingRecipe scaling = ScalingRecipe::Current;
  /// "weight=f32,master=none,first_moment=e4m3", for every tensor.
  std::string formats;
  /// "REGEX:weight_decay=0,lr=1e-4"; the first that matches a name wins.
  std::vector<std::string> groups;
  /// "REGEX:O0" or "REGEX:weight=f32,..."; the first that matches wins.
  std::vector<std::string> classes;
};

/// Builds a module with the optimizer, a layout @model and a function @step of
/// one wrapped update. Reports errors that name the option at fault.
OwningOpRef<ModuleOp> generateStep(MLIRContext *context,
                                   const StepRequest &request);

} // namespace mlir::msamp

#endif // MSAMP_GENERATOR_STEPGENERATOR_H
