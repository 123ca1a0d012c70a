// Verifiers and folders of quantize, dequantize and the scale ops.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mlir::msamp;

/// Checks that `type` is a bundle with the content that `expected` accepts and
/// the layout of `reference`.
static LogicalResult verifyBundle(Operation *op, StringRef what, Type type,
                                  BundleType reference, StringRef expected) {
  auto bundle = dyn_cast<BundleType>(type);
  if (!bundle)
    return op->emitOpError()
           << "'" << what << "' is " << type << ", expected a bundle over "
           << reference.getLayout();
  if (bundle.getLayout() != reference.getLayout())
    return op->emitOpError()
           << "'" << what << "' is over " << bundle.getLayout() << ", expected "
           << reference.getLayout();
  bool matches = expected == "role"
                     ? !bundle.isWide() && !bundle.isScalar()
                     : bundle.getContent().getValue() == expected;
  if (!matches)
    return op->emitOpError() << "'" << what << "' holds " << bundle.getContent()
                             << ", expected " << expected;
  return success();
}

static LogicalResult verifySameShape(Operation *op, Type input, Type result) {
  if (isa<BundleType>(input) || isa<BundleType>(result))
    return op->emitOpError() << "mixes bundles and tensors: 'input' is "
                             << input << ", 'result' is " << result;
  if (getTensorShape(input) != getTensorShape(result)) // C1
    return op->emitOpError() << "'input' is " << input
                             << " but 'result' has another shape: " << result;
  return success();
}

//===----------------------------------------------------------------------===//
// QuantizeOp, DequantizeOp, AmaxOp
//===----------------------------------------------------------------------===//

LogicalResult QuantizeOp::verify() {
  Type input = getInput().getType(), result = getResult().getType();
  if (auto bundle = dyn_cast<BundleType>(input)) { // C2, C3
    if (failed(verifyBundle(*this, "input", input, bundle, "wide")) ||
        failed(verifyBundle(*this, "scale", getScale().getType(), bundle,
                            "scalar")))
      return failure();
    if (getOverflow() != Overflow::Saturate) // C4
      return emitOpError("has overflow 'ieee', but scaled formats of a bundle "
                         "saturate");
    return verifyBundle(*this, "result", result, bundle, "role");
  }
  if (isa<BundleType>(getScale().getType())) // C3
    return emitOpError() << "'scale' is a bundle but 'input' is " << input;
  return verifySameShape(*this, input, result);
}

OpFoldResult QuantizeOp::fold(FoldAdaptor) {
  // quantize(dequantize(q), s) is q where q was made with that very scale: the
  // values are then exact multiples, and encoding them gives the same codes.
  // Only `saturate` has one code for every value (E4M3's NaN has a sign under
  // `ieee`, and loses it in a second pass).
  auto dequantize = getInput().getDefiningOp<DequantizeOp>();
  if (!dequantize || getOverflow() != Overflow::Saturate ||
      dequantize.getInput().getType() != getType())
    return {};
  auto quantize = dequantize.getInput().getDefiningOp<QuantizeOp>();
  if (quantize && quantize.getScale() == getScale() &&
      quantize.getOverflow() == getOverflow())
    return dequantize.getInput();
  return {};
}

LogicalResult DequantizeOp::verify() {
  Type input = getInput().getType(), result = getResult().getType();
  if (auto bundle = dyn_cast<BundleType>(input)) { // C2
    if (failed(verifyBundle(*this, "input", input, bundle, "role")))
      return failure();
    return verifyBundle(*this, "result", result, bundle, "wide");
  }
  return verifySameShape(*this, input, result);
}

LogicalResult AmaxOp::verify() {
  Type input = getInput().getType(), result = getResult().getType();
  if (auto bundle = dyn_cast<BundleType>(input)) { // C2
    if (failed(verifyBundle(*this, "input", input, bundle, "wide")))
      return failure();
    return verifyBundle(*this, "result", result, bundle, "scalar");
  }
  if (isa<BundleType>(result)) // C1
    return emitOpError() << "'result' is " << result << " but 'input' is "
                         << input;
  return success();
}

//===----------------------------------------------------------------------===//
// ComputeScaleOp
//===----------------------------------------------------------------------===//

LogicalResult ComputeScaleOp::verify() {
  Type amax = getAmax().getType(), previous = getPrevious().getType();
  std::optional<Type> payload = getPayload();
  if (auto bundle = dyn_cast<BundleType>(amax)) {
    if (payload) // C2
      return emitOpError() << "bundles take the format of 'previous', but a "
                              "payload "
                           << *payload << " is given";
    if (failed(verifyBundle(*this, "amax", amax, bundle, "scalar")) || // C1
        failed(verifyBundle(*this, "previous", previous, bundle, "role")))
      return failure();
    return verifyBundle(*this, "result", getType(), bundle, "scalar");
  }
  if (amax != previous || amax != getType()) // C1
    return emitOpError() << "'amax', 'previous' and 'result' are " << amax
                         << ", " << previous << " and " << getType()
                         << ", expected one type";
  if (!payload) // C2
    return emitOpError("needs a payload: for f8E4M3FN, f8E5M2 or f16");
  if (!isa<Float8E4M3FNType, Float8E5M2Type, Float16Type>(*payload)) // C2
    return emitOpError() << "payload is " << *payload
                         << ", expected f8E4M3FN, f8E5M2 or f16";
  return success();
}

uint32_t ComputeScaleOp::computeBits(uint32_t amax, uint32_t oldScale,
                                     Type payload) {
  bool isFinite = (amax & 0x7F800000) != 0x7F800000;
  amax &= 0x7FFFFFFF;
  if (amax == 0 || !isFinite)
    return oldScale;
  // With amax = 1.M * 2^E and max_finite = 1.K * 2^X the exponent is X - E,
  // less one if M > K. A subnormal amax is far below the clamp.
  bool ignored;
  APFloat largest =
      APFloat::getLargest(cast<FloatType>(payload).getFloatSemantics());
  largest.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                  &ignored);
  uint32_t maxBits = largest.bitcastToAPInt().getZExtValue();
  int32_t exponent = static_cast<int32_t>(maxBits >> 23) -
                     static_cast<int32_t>(amax >> 23) -
                     ((amax & 0x7FFFFF) > (maxBits & 0x7FFFFF));
  exponent = std::clamp(exponent, -126, 126);
  return static_cast<uint32_t>(exponent + 127) << 23;
}

/// The single f32 of a constant scalar or rank-0 tensor.
static std::optional<uint32_t> getConstantBits(Attribute attribute) {
  if (auto value = dyn_cast_or_null<FloatAttr>(attribute))
    return value.getValue().bitcastToAPInt().getZExtValue();
  if (auto dense = dyn_cast_or_null<DenseFPElementsAttr>(attribute))
    if (dense.isSplat())
      return dense.getSplatValue<APFloat>().bitcastToAPInt().getZExtValue();
  return std::nullopt;
}

OpFoldResult ComputeScaleOp::fold(FoldAdaptor adaptor) {
  auto amax = getConstantBits(adaptor.getAmax());
  auto oldScale = getConstantBits(adaptor.getPrevious());
  if (!amax || !oldScale || !getPayload())
    return {};
  APFloat scale(APFloat::IEEEsingle(),
                APInt(32, computeBits(*amax, *oldScale, *getPayload())));
  if (auto tensor = dyn_cast<RankedTensorType>(getType()))
    return DenseElementsAttr::get(tensor, scale);
  return FloatAttr::get(getType(), scale);
}

//===----------------------------------------------------------------------===//
// UpdateAmaxHistoryOp
//===----------------------------------------------------------------------===//

LogicalResult UpdateAmaxHistoryOp::verify() {
  auto type = cast<RankedTensorType>(getHistory().getType());
  if (!type.hasStaticShape() || type.getDimSize(0) < 1) // C1
    return emitOpError() << "'history' is " << type
                         << ", expected at least one static entry";
  return success();
}

OpFoldResult UpdateAmaxHistoryOp::fold(FoldAdaptor adaptor) {
  auto history = dyn_cast_or_null<DenseFPElementsAttr>(adaptor.getHistory());
  auto amax = dyn_cast_or_null<DenseFPElementsAttr>(adaptor.getAmax());
  if (!history || !amax)
    return {};
  APFloat newest = *amax.value_begin<APFloat>();
  if (!newest.isFinite())
    return DenseElementsAttr::get(history.getType(), APFloat(-1.0f));
  SmallVector<APFloat> entries(history.value_begin<APFloat>(),
                               history.value_end<APFloat>());
  entries.pop_back();
  entries.insert(entries.begin(), newest);
  return DenseElementsAttr::get(history.getType(), entries);
}
