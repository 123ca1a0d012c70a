// Verifiers and helpers of the dialect's attributes.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::msamp;

#include "msamp/Dialect/MSAMP/IR/MSAMPEnums.cpp.inc"

// Prints a nested scaling without its `#msamp.scaling` prefix.
static ParseResult parseNestedScaling(AsmParser &parser, ScalingAttr &scaling) {
  scaling = dyn_cast_or_null<ScalingAttr>(ScalingAttr::parse(parser, Type()));
  return success(static_cast<bool>(scaling));
}
static void printNestedScaling(AsmPrinter &printer, ScalingAttr scaling) {
  scaling.print(printer);
}

#define GET_ATTRDEF_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPAttrs.cpp.inc"

void MSAMPDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "msamp/Dialect/MSAMP/IR/MSAMPAttrs.cpp.inc"
      >();
}

LogicalResult
ScalingAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    Granularity, ScalingRecipe recipe, int64_t history) {
  if (recipe == ScalingRecipe::Delayed && (history < 1 || history > 1024))
    return emitError() << "delayed scaling needs a history of 1 to 1024 steps, "
                          "got "
                       << history;
  if (recipe != ScalingRecipe::Delayed && history != 0)
    return emitError() << stringifyScalingRecipe(recipe)
                       << " scaling has no history, got " << history;
  return success();
}

LogicalResult
StorageAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                    Type payload, ScalingAttr scaling) {
  bool isFp8 = isa<Float8E4M3FNType, Float8E5M2Type>(payload);
  bool isWide = payload.isBF16() || payload.isF32();
  if (!isFp8 && !isWide && !payload.isF16()) // C1
    return emitError() << "payload is " << payload
                       << ", expected f8E4M3FN, f8E5M2, f16, bf16 or f32";
  if (isFp8 && !scaling) // C2
    return emitError() << "payload " << payload << " needs a scaling";
  if (isWide && scaling) // C2
    return emitError() << "payload " << payload
                       << " has the range of f32 and takes no scaling";
  return success();
}

bool HyperAttr::accepts(double candidate) const {
  double upper = getUpper().getValueAsDouble();
  return candidate >= getLower().getValueAsDouble() &&
         (candidate < upper || (std::isinf(upper) && candidate <= upper)) &&
         std::isfinite(candidate);
}

std::string HyperAttr::getRangeText() const {
  std::string text;
  llvm::raw_string_ostream(text)
      << "[" << llvm::format("%g", getLower().getValueAsDouble()) << ", "
      << llvm::format("%g", getUpper().getValueAsDouble()) << ")";
  return text;
}
