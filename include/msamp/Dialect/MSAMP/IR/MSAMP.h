// The msamp dialect: enums, attributes, types and ops.

#ifndef MSAMP_DIALECT_MSAMP_IR_MSAMP_H
#define MSAMP_DIALECT_MSAMP_IR_MSAMP_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "msamp/Dialect/MSAMP/IR/MSAMPDialect.h.inc"
#include "msamp/Dialect/MSAMP/IR/MSAMPEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPTypes.h.inc"

#define GET_OP_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPOps.h.inc"

namespace mlir::msamp {

/// Names of the roles that every optimizer has; states bring their own.
inline constexpr llvm::StringLiteral kWeightRole = "weight";
inline constexpr llvm::StringLiteral kMasterWeightRole = "master_weight";
inline constexpr llvm::StringLiteral kGradRole = "grad";
/// What ranks send of their gradients, in a sharded layout. The optimizer does
/// not see it: its gradient is the mean.
inline constexpr llvm::StringLiteral kWireRole = "wire";
/// On a function of updates that ranks share, until msamp-shard-step: the
/// policy, and the process group.
inline constexpr llvm::StringLiteral kShardingAttr = "msamp.sharding";
inline constexpr llvm::StringLiteral kGroupAttr = "msamp.group";
inline constexpr llvm::StringLiteral kReductionAttr = "msamp.reduction";

/// Shape of a tensor or scaled tensor.
ArrayRef<int64_t> getTensorShape(Type type);
/// Format of a tensor or scaled tensor.
StorageAttr getTensorStorage(Type type);

/// Succeeds if `op` may appear in an optimizer or wrapper region, elementwise
/// or per tensor; otherwise reports an error that names it.
LogicalResult verifyClosedOp(Operation *op, bool isElementwise);

} // namespace mlir::msamp

#endif // MSAMP_DIALECT_MSAMP_IR_MSAMP_H
