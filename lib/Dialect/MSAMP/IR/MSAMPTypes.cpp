// Syntax and verifiers of scaled tensors and bundles.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::msamp;

#define GET_TYPEDEF_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPTypes.cpp.inc"

void MSAMPDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "msamp/Dialect/MSAMP/IR/MSAMPTypes.cpp.inc"
      >();
}

ArrayRef<int64_t> mlir::msamp::getTensorShape(Type type) {
  if (auto scaled = dyn_cast<ScaledType>(type))
    return scaled.getShape();
  return cast<RankedTensorType>(type).getShape();
}

StorageAttr mlir::msamp::getTensorStorage(Type type) {
  if (auto scaled = dyn_cast<ScaledType>(type))
    return scaled.getStorage();
  return StorageAttr::get(type.getContext(),
                          cast<RankedTensorType>(type).getElementType(),
                          ScalingAttr());
}

//===----------------------------------------------------------------------===//
// ScaledType: <4x8, #msamp.storage<...>>
//===----------------------------------------------------------------------===//

Type ScaledType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  StorageAttr storage;
  if (parser.parseLess())
    return {};
  // A rank-0 tensor has no dimension list and no comma.
  auto parsed = parser.parseDimensionList(shape, /*allowDynamic=*/false,
                                          /*withTrailingX=*/false);
  if (failed(parsed) || (!shape.empty() && parser.parseComma()) ||
      parser.parseAttribute(storage) || parser.parseGreater())
    return {};
  return parser.getChecked<ScaledType>(parser.getContext(), shape, storage);
}

void ScaledType::print(AsmPrinter &printer) const {
  printer << "<";
  llvm::interleave(getShape(), printer.getStream(), "x");
  if (!getShape().empty())
    printer << ", ";
  printer << getStorage() << ">";
}

LogicalResult
ScaledType::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                   ArrayRef<int64_t> shape, StorageAttr storage) {
  if (!storage.isScaled()) // C1
    return emitError() << "storage " << storage
                       << " has no scaling; use an ordinary tensor";
  for (int64_t size : shape)
    if (size < 0) // C2
      return emitError() << "dimension " << size << " is not static";
  return success();
}

//===----------------------------------------------------------------------===//
// BundleType: <@layout, content>
//===----------------------------------------------------------------------===//

Type BundleType::parse(AsmParser &parser) {
  FlatSymbolRefAttr layout;
  std::string content;
  if (parser.parseLess() || parser.parseAttribute(layout) ||
      parser.parseComma() || parser.parseKeywordOrString(&content) ||
      parser.parseGreater())
    return {};
  return get(parser.getContext(), layout,
             StringAttr::get(parser.getContext(), content));
}

void BundleType::print(AsmPrinter &printer) const {
  printer << "<" << getLayout() << ", ";
  printer.printKeywordOrString(getContent().getValue());
  printer << ">";
}

BundleType BundleType::getWide(FlatSymbolRefAttr layout) {
  MLIRContext *context = layout.getContext();
  return get(context, layout, StringAttr::get(context, wideContent));
}

BundleType BundleType::getScalar(FlatSymbolRefAttr layout) {
  MLIRContext *context = layout.getContext();
  return get(context, layout, StringAttr::get(context, scalarContent));
}
