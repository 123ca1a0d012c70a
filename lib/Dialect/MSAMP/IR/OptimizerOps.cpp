// Syntax, verifiers and folders of optimizers, layouts and updates.

#include "msamp/Dialect/MSAMP/IR/MSAMP.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::msamp;

//===----------------------------------------------------------------------===//
// OptimizerOp: syntax
//===----------------------------------------------------------------------===//

/// Parses a float with an optional sign, or "inf".
static ParseResult parseBound(OpAsmParser &parser, FloatAttr &result) {
  double value;
  if (succeeded(parser.parseOptionalKeyword("inf")))
    value = std::numeric_limits<double>::infinity();
  else if (parser.parseFloat(value))
    return failure();
  result = parser.getBuilder().getF64FloatAttr(value);
  return success();
}

/// Parses `name = default in [lower, upper)`.
static ParseResult parseHyper(OpAsmParser &parser,
                              SmallVectorImpl<Attribute> &hyper) {
  std::string name;
  FloatAttr value, lower, upper;
  if (parser.parseKeywordOrString(&name) || parser.parseEqual() ||
      parseBound(parser, value) || parser.parseKeyword("in") ||
      parser.parseLSquare() || parseBound(parser, lower) ||
      parser.parseComma() || parseBound(parser, upper) || parser.parseRParen())
    return failure();
  hyper.push_back(HyperAttr::get(parser.getContext(),
                                 parser.getBuilder().getStringAttr(name), value,
                                 lower, upper));
  return success();
}

/// Parses `name` or `name : range`.
static ParseResult parseState(OpAsmParser &parser,
                              SmallVectorImpl<Attribute> &states) {
  std::string name;
  StateRange range = StateRange::Signed;
  if (parser.parseKeywordOrString(&name))
    return failure();
  if (succeeded(parser.parseOptionalColon())) {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<StateRange> parsed = symbolizeStateRange(keyword);
    if (!parsed)
      return parser.emitError(loc) << "state range is '" << keyword
                                   << "', expected signed or nonnegative";
    range = *parsed;
  }
  states.push_back(StateAttr::get(
      parser.getContext(), parser.getBuilder().getStringAttr(name), range));
  return success();
}

/// Parses `keyword(%arg: type, ...) { ... }` into `region`.
static ParseResult parseRegionWithArguments(OpAsmParser &parser,
                                            StringRef keyword, Region &region) {
  SmallVector<OpAsmParser::Argument> arguments;
  return failure(parser.parseKeyword(keyword) ||
                 parser.parseArgumentList(arguments,
                                          OpAsmParser::Delimiter::Paren,
                                          /*allowType=*/true) ||
                 parser.parseRegion(region, arguments));
}

ParseResult OptimizerOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<Attribute> states, hyper;
  auto parseStates = [&] { return parseState(parser, states); };
  auto parseHypers = [&] { return parseHyper(parser, hyper); };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseKeyword("states") ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseStates) ||
      parser.parseKeyword("hyper") ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseHypers) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parseRegionWithArguments(parser, "scalars", *result.addRegion()) ||
      parseRegionWithArguments(parser, "body", *result.addRegion()))
    return failure();
  Builder &builder = parser.getBuilder();
  result.addAttribute(getStatesAttrName(result.name),
                      builder.getArrayAttr(states));
  result.addAttribute(getHyperAttrName(result.name),
                      builder.getArrayAttr(hyper));
  return success();
}

static void printBound(OpAsmPrinter &printer, FloatAttr bound) {
  if (bound.getValue().isInfinity())
    printer << "inf";
  else
    printer.printAttributeWithoutType(bound);
}

static void printRegionWithArguments(OpAsmPrinter &printer, StringRef keyword,
                                     Region &region) {
  printer << " " << keyword << "(";
  llvm::interleaveComma(
      region.getArguments(), printer,
      [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ") ";
  printer.printRegion(region, /*printEntryBlockArgs=*/false);
}

void OptimizerOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << " states(";
  llvm::interleaveComma(
      getStates().getAsRange<StateAttr>(), printer, [&](StateAttr state) {
        printer.printKeywordOrString(state.getName().getValue());
        printer << " : " << stringifyStateRange(state.getRange());
      });
  printer << ") hyper(";
  llvm::interleaveComma(
      getHyper().getAsRange<HyperAttr>(), printer, [&](HyperAttr hyper) {
        printer.printKeywordOrString(hyper.getName().getValue());
        printer << " = ";
        printBound(printer, hyper.getValue());
        printer << " in [";
        printBound(printer, hyper.getLower());
        printer << ", ";
        printBound(printer, hyper.getUpper());
        printer << ")";
      });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getStatesAttrName(), getHyperAttrName()});
  printRegionWithArguments(printer, "scalars", getScalars());
  printRegionWithArguments(printer, "body", getBody());
}

//===----------------------------------------------------------------------===//
// OptimizerOp: semantics
//===----------------------------------------------------------------------===//

HyperAttr OptimizerOp::findHyper(StringRef name) {
  for (HyperAttr hyper : getHyper().getAsRange<HyperAttr>())
    if (hyper.getName() == name)
      return hyper;
  return {};
}

SmallVector<StringRef> OptimizerOp::getRoles() {
  SmallVector<StringRef> roles{kWeightRole, kMasterWeightRole, kGradRole};
  for (StateAttr state : getStates().getAsRange<StateAttr>())
    roles.push_back(state.getName().getValue());
  return roles;
}

LogicalResult OptimizerOp::verify() {
  llvm::StringSet<> names;
  for (HyperAttr hyper : getHyper().getAsRange<HyperAttr>()) {
    if (!names.insert(hyper.getName().getValue()).second) // C5
      return emitOpError() << "declares hyper-parameter " << hyper.getName()
                           << " twice";
    if (!hyper.accepts(hyper.getValue().getValueAsDouble())) // C6
      return emitOpError() << "default of hyper-parameter " << hyper.getName()
                           << " is " << hyper.getValue().getValueAsDouble()
                           << ", outside of " << hyper.getRangeText();
  }
  names.clear();
  // "step" and the suffixes of files are taken, too.
  for (StringRef fixed : {StringRef(kWeightRole), StringRef(kMasterWeightRole),
                          StringRef(kGradRole), StringRef(kWireRole),
                          StringRef("step"), StringRef(BundleType::wideContent),
                          StringRef(BundleType::scalarContent)})
    names.insert(fixed);
  for (StateAttr state : getStates().getAsRange<StateAttr>())
    if (!names.insert(state.getName().getValue()).second) // C5
      return emitOpError() << "state name " << state.getName()
                           << " is taken or reserved";
  return success();
}

/// Checks the types of `block`'s arguments from `first` on against `expected`.
static LogicalResult verifyArguments(Operation *op, StringRef region,
                                     Block &block, size_t expectedCount,
                                     function_ref<Type(size_t)> expectedType) {
  if (block.getNumArguments() != expectedCount)
    return op->emitOpError()
           << "'" << region << "' takes " << block.getNumArguments()
           << " arguments, expected " << expectedCount;
  for (auto [index, argument] : llvm::enumerate(block.getArguments()))
    if (argument.getType() != expectedType(index))
      return op->emitOpError()
             << "argument " << index << " of '" << region << "' is "
             << argument.getType() << ", expected " << expectedType(index);
  return success();
}

/// Checks what `block` yields, and that it is made of closed ops.
static LogicalResult verifyClosedBlock(Operation *op, StringRef region,
                                       Block &block, Type type,
                                       std::optional<size_t> count) {
  for (Operation &nested : block) {
    if (failed(verifyClosedOp(&nested, type.isF32())))
      return failure();
    for (Value operand : nested.getOperands())
      if (operand.getParentBlock() != &block)
        return nested.emitOpError()
               << "in '" << region << "' uses a value from outside of it";
  }
  auto yield =
      block.empty() ? nullptr : dyn_cast<YieldOp>(block.getTerminator());
  if (!yield)
    return op->emitOpError() << "'" << region << "' does not end in a yield";
  if (count && yield.getNumOperands() != *count)
    return op->emitOpError()
           << "'" << region << "' yields " << yield.getNumOperands()
           << " values, expected " << *count;
  for (auto [index, value] : llvm::enumerate(yield.getValues()))
    if (value.getType() != type)
      return yield.emitOpError()
             << "value " << index << " of '" << region << "' is "
             << value.getType() << ", expected " << type;
  return success();
}

LogicalResult OptimizerOp::verifyRegions() {
  Builder builder(getContext());
  Type f32 = builder.getF32Type(), f64 = builder.getF64Type(),
       i64 = builder.getI64Type();
  Block &scalars = getScalars().front(), &body = getBody().front();
  if (failed(verifyArguments( // C1
          *this, "scalars", scalars, 1 + getHyper().size(),
          [&](size_t index) { return index == 0 ? i64 : f64; })) ||
      failed(verifyClosedBlock(*this, "scalars", scalars, f64, std::nullopt)))
    return failure();
  size_t numScalars = scalars.getTerminator()->getNumOperands();
  if (failed(verifyArguments(*this, "body", body, // C2
                             2 + getNumStates() + numScalars,
                             [&](size_t) { return f32; })))
    return failure();
  return verifyClosedBlock(*this, "body", body, f32, 1 + getNumStates()); // C3
}

//===----------------------------------------------------------------------===//
// PowiOp
//===----------------------------------------------------------------------===//

OpFoldResult PowiOp::fold(FoldAdaptor adaptor) {
  auto exponent = dyn_cast_or_null<IntegerAttr>(adaptor.getExponent());
  if (!exponent)
    return {};
  if (exponent.getValue().isOne())
    return getBase();
  auto base = dyn_cast_or_null<FloatAttr>(adaptor.getBase());
  if (!base)
    return {};
  APFloat power = base.getValue(), result(power.getSemantics(), 1);
  int64_t signedExponent = exponent.getInt();
  uint64_t n = signedExponent < 0 ? 0 - static_cast<uint64_t>(signedExponent)
                                  : static_cast<uint64_t>(signedExponent);
  for (; n != 0; n >>= 1) {
    if (n & 1)
      result.multiply(power, APFloat::rmNearestTiesToEven);
    power.multiply(power, APFloat::rmNearestTiesToEven);
  }
  if (signedExponent < 0) {
    APFloat one(power.getSemantics(), 1);
    one.divide(result, APFloat::rmNearestTiesToEven);
    result = one;
  }
  return FloatAttr::get(getType(), result);
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

void LayoutOp::build(OpBuilder &builder, OperationState &state,
                     StringRef name) {
  state.addAttribute(getSymNameAttrName(state.name),
                     builder.getStringAttr(name));
  state.addRegion()->emplaceBlock();
}

LogicalResult LayoutOp::verify() {
  for (Operation &op : getTable().front())
    if (!isa<StorageClassOp, ParamGroupOp, TensorOp>(op)) // C1
      return op.emitError() << "'" << op.getName()
                            << "' inside a layout, expected storage_class, "
                               "param_group or tensor";
  // C2 of `tensor`, here because one pass over the table answers all of them:
  // a symbol look-up for each of 10,000 tensors would rebuild it every time.
  llvm::DenseMap<StringAttr, Operation *> symbols, names;
  for (Operation &op : getTable().front())
    if (!isa<TensorOp>(op))
      symbols[mlir::SymbolTable::getSymbolName(&op)] = &op;
  for (auto tensor : getTable().front().getOps<TensorOp>()) {
    auto [entry, inserted] = names.insert({tensor.getNameAttr(), tensor});
    if (!inserted) { // C3
      InFlightDiagnostic diagnostic = tensor.emitOpError()
                                      << "name " << tensor.getNameAttr()
                                      << " is taken";
      diagnostic.attachNote(entry->second->getLoc()) << "by this tensor";
      return diagnostic;
    }
    if (FlatSymbolRefAttr ref = tensor.getStorageClassAttr())
      if (!isa_and_nonnull<StorageClassOp>(symbols.lookup(ref.getAttr())))
        return tensor.emitOpError()
               << tensor.getNameAttr() << " is of storage class " << ref
               << ", which the layout does not declare";
    if (FlatSymbolRefAttr ref = tensor.getGroupAttr())
      if (!isa_and_nonnull<ParamGroupOp>(symbols.lookup(ref.getAttr())))
        return tensor.emitOpError()
               << tensor.getNameAttr() << " is in group " << ref
               << ", which the layout does not declare";
  }
  if (!getSharding())
    return success();
  if (getReduction() == RankReduction::Max) // C2
    return emitOpError("reduces gradients by max, expected mean or sum");
  for (auto storageClass : getTable().front().getOps<StorageClassOp>()) { // C3
    StorageAttr grad = storageClass.getStorage(kGradRole);
    if (!storageClass.getStorage(kWireRole))
      return storageClass.emitOpError()
             << "@" << storageClass.getSymName() << " of a sharded layout has "
             << "no format for \"" << kWireRole << "\"";
    if (!grad || !grad.getPayload().isF32())
      return storageClass.emitOpError()
             << "format of role \"grad\" is " << grad
             << "; gradients of a sharded layout are means or sums, in f32";
  }
  return success();
}

LogicalResult LayoutOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *scope = (*this)->getParentOp(); // its own table is of classes
  if (getGroupAttr() && scope &&             // C2
      !symbols.lookupNearestSymbolFrom<ProcessGroupOp>(scope, getGroupAttr()))
    return emitOpError() << "group " << getGroupAttr() << " is not defined";
  return success();
}

LogicalResult StorageClassOp::verify() {
  for (NamedAttribute entry : getFormats()) {
    auto word = dyn_cast<StringAttr>(entry.getValue());
    if (word && word.getValue() == "none") {
      if (entry.getName() != kMasterWeightRole) // C2
        return emitOpError() << "role " << entry.getName()
                             << " cannot be \"none\"; only master_weight can";
    } else if (!isa<StorageAttr>(entry.getValue())) { // C1
      return emitOpError() << "format of role " << entry.getName() << " is "
                           << entry.getValue()
                           << ", expected #msamp.storage or \"none\"";
    }
  }
  StorageAttr grad = getStorage(kGradRole);
  if (grad && (grad.isDelayed() || grad.isBounded())) // C3
    return emitOpError() << "format of role \"" << kGradRole << "\" is " << grad
                         << "; a gradient comes with its scale, so that it can "
                            "only be scaled by its current amax";
  return success();
}

StorageAttr StorageClassOp::getStorage(StringRef role) {
  return getFormats().getAs<StorageAttr>(role);
}

StringRef StorageClassOp::getParamRole() {
  return getStorage(kMasterWeightRole) ? StringRef(kMasterWeightRole)
                                       : StringRef(kWeightRole);
}

LogicalResult ParamGroupOp::verify() {
  for (NamedAttribute entry : getHyper()) {
    auto value = dyn_cast<FloatAttr>(entry.getValue());
    if (!value || !value.getType().isF64()) // C1
      return emitOpError() << "hyper-parameter " << entry.getName() << " is "
                           << entry.getValue() << ", expected an f64";
  }
  return success();
}

LogicalResult TensorOp::verify() {
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape() || !type.getElementType().isF32()) // C1
    return emitOpError() << getNameAttr() << " is " << getType()
                         << ", expected a static f32 tensor";
  if (getName().empty()) // C3
    return emitOpError("has an empty name");
  int64_t elements = 1;
  for (int64_t size : type.getShape())
    if (llvm::MulOverflow(elements, size, elements)) // C1
      return emitOpError() << getNameAttr() << " is " << type
                           << ", of 2^63 elements or more";
  return success();
}

//===----------------------------------------------------------------------===//
// WrappedUpdateOp
//===----------------------------------------------------------------------===//

LogicalResult WrappedUpdateOp::inferReturnTypes(
    MLIRContext *, std::optional<Location>, ValueRange operands,
    DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
    SmallVectorImpl<Type> &types) {
  WrappedUpdateOpAdaptor adaptor(operands, attributes, properties, regions);
  types.push_back(adaptor.getWeight().getType());
  if (Value master = adaptor.getMasterWeight())
    types.push_back(master.getType());
  llvm::append_range(types, adaptor.getStates().getTypes());
  return success();
}

/// Checks that `type`, which stands for `role`, fits the weight: a bundle of
/// the same layout, or a tensor of the same shape.
static LogicalResult verifyRoleType(WrappedUpdateOp op, StringRef role,
                                    Type type) {
  Type weight = op.getWeight().getType();
  if (auto bundle = dyn_cast<BundleType>(weight)) { // C3
    auto other = dyn_cast<BundleType>(type);
    if (!other || other.getLayout() != bundle.getLayout() ||
        other.getContent().getValue() != role)
      return op.emitOpError() << "operand of role '" << role << "' is " << type
                              << ", expected !msamp.bundle<"
                              << bundle.getLayout() << ", " << role << ">";
    return success();
  }
  if (isa<BundleType>(type) ||
      getTensorShape(type) != getTensorShape(weight)) // C3
    return op.emitOpError() << "operand of role '" << role << "' is " << type
                            << ", but the weight is " << weight;
  return success();
}

LogicalResult WrappedUpdateOp::verify() {
  if (failed(verifyRoleType(*this, kWeightRole, getWeight().getType())) ||
      failed(verifyRoleType(*this, kGradRole, getGrad().getType())))
    return failure();
  if (Value master = getMasterWeight())
    if (failed(verifyRoleType(*this, kMasterWeightRole, master.getType())))
      return failure();
  Type f32 = Float32Type::get(getContext());
  for (auto [name, region] : {std::pair<StringRef, Region *>("pre", &getPre()),
                              {"post", &getPost()}}) {
    if (region->empty())
      continue;
    if (failed(verifyArguments(*this, name, region->front(), 2, // C4
                               [&](size_t) { return f32; })) ||
        failed(verifyClosedBlock(*this, name, region->front(), f32, 1)))
      return failure();
  }
  return success();
}

LogicalResult
WrappedUpdateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // An optimizer of the compiler's library is not in the module yet (C1); the
  // pass that resolves it checks again.
  auto optimizer =
      symbols.lookupNearestSymbolFrom<OptimizerOp>(*this, getOptimizerAttr());
  if (!optimizer)
    return success();
  if (getStates().size() != optimizer.getNumStates()) { // C2
    InFlightDiagnostic diagnostic = emitOpError()
                                    << "has " << getStates().size()
                                    << " state operands, but optimizer @"
                                    << optimizer.getSymName() << " has "
                                    << optimizer.getNumStates() << " states";
    diagnostic.attachNote(optimizer.getLoc()) << "optimizer defined here";
    return diagnostic;
  }
  for (auto [index, state] : llvm::enumerate(getStates()))
    if (failed(verifyRoleType(*this, optimizer.getState(index).getName(),
                              state.getType())))
      return failure();
  return success();
}

LogicalResult WrappedUpdateOp::canonicalize(WrappedUpdateOp op,
                                            PatternRewriter &rewriter) {
  // A `pre` that yields its gradient, or a `post` that yields the new
  // parameter, is the same as none.
  for (Region *region : {&op.getPre(), &op.getPost()}) {
    if (region->empty())
      continue;
    Block &block = region->front();
    if (block.getTerminator()->getOperand(0) != block.getArgument(1))
      continue;
    rewriter.modifyOpInPlace(op, [&] { rewriter.eraseBlock(&block); });
    return success();
  }
  return failure();
}

//===----------------------------------------------------------------------===//
// UpdateOp
//===----------------------------------------------------------------------===//

LogicalResult UpdateOp::verify() {
  BundleType first;
  for (Type type : llvm::concat<const Type>(getInputs().getTypes(),
                                            getOutputs().getTypes())) {
    auto bundle = cast<BundleType>(type);
    if (!first)
      first = bundle;
    if (!bundle.isWide() || bundle != first) // C1
      return emitOpError() << "has a value of type " << type
                           << ", expected wide bundles over one layout";
  }
  return success();
}

LogicalResult UpdateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto optimizer =
      symbols.lookupNearestSymbolFrom<OptimizerOp>(*this, getOptimizerAttr());
  if (!optimizer)
    return emitOpError() << "optimizer " << getOptimizerAttr()
                         << " is not defined";
  size_t states = optimizer.getNumStates();
  if (getInputs().size() != 2 + states || getOutputs().size() != 1 + states) {
    InFlightDiagnostic diagnostic = // C2
        emitOpError() << "has " << getInputs().size() << " inputs and "
                      << getOutputs().size() << " outputs, expected "
                      << 2 + states << " and " << 1 + states;
    diagnostic.attachNote(optimizer.getLoc()) << "optimizer defined here";
    return diagnostic;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Pack and unpack
//===----------------------------------------------------------------------===//

static LogicalResult verifyRoleBundle(Operation *op, Type type) {
  auto bundle = cast<BundleType>(type);
  if (bundle.isWide() || bundle.isScalar())
    return op->emitOpError() << "'" << bundle.getContent().getValue()
                             << "' is not a role that is stored";
  return success();
}

LogicalResult PackOp::verify() { return verifyRoleBundle(*this, getType()); }

OpFoldResult PackOp::fold(FoldAdaptor) {
  // pack(unpack(x)) is x.
  auto unpack = getTensors().empty()
                    ? nullptr
                    : getTensors()[0].getDefiningOp<UnpackOp>();
  if (unpack && unpack.getBundle().getType() == getType() &&
      llvm::equal(unpack.getTensors(), getTensors()))
    return unpack.getBundle();
  return {};
}

LogicalResult UnpackOp::verify() {
  return verifyRoleBundle(*this, getBundle().getType());
}

LogicalResult UnpackOp::fold(FoldAdaptor,
                             SmallVectorImpl<OpFoldResult> &results) {
  // unpack(pack(x...)) is x...
  auto pack = getBundle().getDefiningOp<PackOp>();
  if (!pack || pack.getTensors().getTypes() != getTensors().getTypes())
    return failure();
  results.append(pack.getTensors().begin(), pack.getTensors().end());
  return success();
}

// Enum attributes stand as bare keywords in the ops' syntax.
template <typename EnumAttrT>
static ParseResult parseEnumKeyword(OpAsmParser &parser, EnumAttrT &attribute) {
  using Enum = decltype(attribute.getValue());
  FailureOr<Enum> value = FieldParser<Enum>::parse(parser);
  if (succeeded(value))
    attribute = EnumAttrT::get(parser.getContext(), *value);
  return success(succeeded(value));
}
template <typename EnumAttrT>
static void printEnumKeyword(OpAsmPrinter &printer, Operation *,
                             EnumAttrT attribute) {
  printer << stringifyEnum(attribute.getValue());
}

#define GET_OP_CLASSES
#include "msamp/Dialect/MSAMP/IR/MSAMPOps.cpp.inc"
