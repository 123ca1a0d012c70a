// What the schedule `speculative` makes of a kernel whose scales are those of
// the values it stores. Bounds on their amaxes mostly tell the scales, which
// are powers of two, before any element is seen; then one pass is exact.

#ifndef MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_SCALESPECULATION_H
#define MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_SCALESPECULATION_H

#include "AmaxAnalysis.h"

namespace mlir::msamp {

class ScaleSpeculation {
public:
  /// `kernel` has no phase yet; `currentRoles` are those whose amaxes its
  /// stores wait for.
  ScaleSpeculation(KernelOp kernel, OptimizerOp optimizer,
                   StorageClassOp storageClass,
                   ArrayRef<StringRef> currentRoles,
                   llvm::function_ref<bool(Value)> isVarying);

  /// Roles whose amaxes the narrow phase finds; empty if it would load as much
  /// as the reduce phase.
  ArrayRef<StringRef> getNarrowRoles() const { return narrowRoles; }

  /// Fills an empty kernel of phase settle; fails where there is no bound.
  LogicalResult emitSettle(KernelOp settle);

  /// Makes `kernel` take scales that were settled, and leave what bounds of the
  /// next step start from; emitSettle comes before.
  void prepareStore();

private:
  void chooseNarrow();
  /// Computations of scales that wait for an amax, by role.
  llvm::MapVector<StringRef, ComputeScaleOp> getScales();
  /// The op that stores `role`, or null.
  StoreOp findStore(StringRef role);
  /// What a stored payload means.
  Value emitStored(OpBuilder &builder, StoreOp store);
  void reportStored();
  /// Makes an amax that follows from another one's be of the elements.
  void reportDerived(ReduceOp reduce);

  KernelOp kernel;
  OptimizerOp optimizer;
  StorageClassOp storageClass;
  SmallVector<StringRef> currentRoles, narrowRoles;
  llvm::function_ref<bool(Value)> isVarying;
  llvm::MapVector<StringRef, StringRef> ratios;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_DIALECT_MSAMP_TRANSFORMS_SCALESPECULATION_H
