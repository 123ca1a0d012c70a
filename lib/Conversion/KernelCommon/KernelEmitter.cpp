// See KernelEmitter.h.

#include "KernelCommon/KernelEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

Value ScalarBuilder::i32(uint32_t value) {
  return arith::ConstantOp::create(
      builder, loc, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
}
Value ScalarBuilder::i64(int64_t value) {
  return arith::ConstantOp::create(builder, loc,
                                   builder.getI64IntegerAttr(value));
}
Value ScalarBuilder::compare(arith::CmpIPredicate predicate, Value left,
                             Value right) {
  return arith::CmpIOp::create(builder, loc, predicate, left, right);
}
Value ScalarBuilder::select(Value condition, Value whenTrue, Value whenFalse) {
  return arith::SelectOp::create(builder, loc, condition, whenTrue, whenFalse);
}
Value ScalarBuilder::bitcast(Type type, Value value) {
  return arith::BitcastOp::create(builder, loc, type, value);
}
Value ScalarBuilder::splat(int64_t lanes, Value value) {
  return vector::BroadcastOp::create(
      builder, loc, VectorType::get({lanes}, value.getType()), value);
}
Value ScalarBuilder::address(Value base, Type type, Value index) {
  return LLVM::GEPOp::create(builder, loc, base.getType(), type, base,
                             ArrayRef<LLVM::GEPArg>{index});
}
Value ScalarBuilder::address(Value base, Type type, int32_t index) {
  return LLVM::GEPOp::create(builder, loc, base.getType(), type, base,
                             ArrayRef<LLVM::GEPArg>{index});
}
Value ScalarBuilder::load(Type type, Value address, unsigned alignment) {
  return LLVM::LoadOp::create(builder, loc, type, address, alignment);
}
void ScalarBuilder::store(Value value, Value address, unsigned alignment) {
  LLVM::StoreOp::create(builder, loc, value, address, alignment);
}

Type mlir::msamp::withLanes(Type element, int64_t lanes) {
  return lanes == 1 ? element : Type(VectorType::get({lanes}, element));
}

Type mlir::msamp::asInteger(Type payload) {
  return payload.isF32() ? payload
                         : IntegerType::get(payload.getContext(),
                                            payload.getIntOrFloatBitWidth());
}

//===----------------------------------------------------------------------===//
// Expansions of single ops
//===----------------------------------------------------------------------===//

uint32_t mlir::msamp::toSingleBits(APFloat value) {
  bool ignored;
  value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &ignored);
  return static_cast<uint32_t>(value.bitcastToAPInt().getZExtValue());
}

Value mlir::msamp::expandComputeScale(OpBuilder &builder, Location loc,
                                      Value amax, Value oldScale,
                                      Type payload) {
  ScalarBuilder a{builder, loc};
  uint32_t maxBits = toSingleBits(
      APFloat::getLargest(cast<FloatType>(payload).getFloatSemantics()));
  Type i32 = builder.getI32Type();
  Value bits = a.binary<arith::AndIOp>(a.bitcast(i32, amax), a.i32(0x7FFFFFFF));
  Value exponent = a.binary<arith::ShRUIOp>(bits, a.i32(23));
  Value isAbove = a.compare(arith::CmpIPredicate::ugt,
                            a.binary<arith::AndIOp>(bits, a.i32(0x7FFFFF)),
                            a.i32(maxBits & 0x7FFFFF));
  Value result = a.binary<arith::SubIOp>(
      a.binary<arith::SubIOp>(a.i32(maxBits >> 23), exponent),
      arith::ExtUIOp::create(builder, loc, i32, isAbove));
  result = a.binary<arith::MinSIOp>(result, a.i32(126));
  result = a.binary<arith::MaxSIOp>(result, a.i32(-126));
  Value scale = a.binary<arith::ShLIOp>(
      a.binary<arith::AddIOp>(result, a.i32(127)), a.i32(23));
  // amax == 0 wraps around; infinity and NaN are at or above 0x7F800000.
  Value isUseless =
      a.compare(arith::CmpIPredicate::uge,
                a.binary<arith::SubIOp>(bits, a.i32(1)), a.i32(0x7F800000 - 1));
  return a.select(isUseless, oldScale, a.bitcast(builder.getF32Type(), scale));
}

/// Exact f32 fma without an instruction for it: the product is exact in f64,
/// the sum is rounded to odd there (its error, by two-sum, says which way), and
/// rounding an odd f64 to f32 is rounding once.
static Value expandFma(OpBuilder &builder, math::FmaOp op,
                       ValueRange operands) {
  Location loc = op.getLoc();
  ScalarBuilder a{builder, loc};
  int64_t lanes = 1;
  if (auto vector = dyn_cast<VectorType>(operands[0].getType()))
    lanes = vector.getNumElements();
  Type f64 = withLanes(builder.getF64Type(), lanes);
  Type i64 = withLanes(builder.getI64Type(), lanes);
  auto wide = [&](Value value) -> Value {
    return arith::ExtFOp::create(builder, loc, f64, value);
  };
  auto constant = [&](TypedAttr value) -> Value {
    if (auto vector = dyn_cast<VectorType>(f64))
      value = DenseElementsAttr::get(
          VectorType::get(vector.getShape(), value.getType()), value);
    return arith::ConstantOp::create(builder, loc, value);
  };
  Value product = a.binary<arith::MulFOp>(wide(operands[0]), wide(operands[1]));
  Value addend = wide(operands[2]);
  Value sum = a.binary<arith::AddFOp>(product, addend);
  Value fromAddend = a.binary<arith::SubFOp>(sum, product);
  Value fromProduct = a.binary<arith::SubFOp>(sum, fromAddend);
  Value error =
      a.binary<arith::AddFOp>(a.binary<arith::SubFOp>(product, fromProduct),
                              a.binary<arith::SubFOp>(addend, fromAddend));
  Value zero = constant(builder.getF64FloatAttr(0.0));
  auto compare = [&](arith::CmpFPredicate predicate, Value left, Value right) {
    return arith::CmpFOp::create(builder, loc, predicate, left, right)
        .getResult();
  };
  Value one = constant(builder.getI64IntegerAttr(1));
  Value bits = arith::BitcastOp::create(builder, loc, i64, sum);
  Value isInexact = compare(arith::CmpFPredicate::ONE, error, zero);
  Value isEven =
      a.compare(arith::CmpIPredicate::eq, a.binary<arith::AndIOp>(bits, one),
                constant(builder.getI64IntegerAttr(0)));
  Value isAway = a.compare(arith::CmpIPredicate::eq,
                           compare(arith::CmpFPredicate::OGT, error, zero),
                           compare(arith::CmpFPredicate::OGT, sum, zero));
  Value step = a.select(isAway, one, constant(builder.getI64IntegerAttr(-1)));
  Value odd = a.select(a.binary<arith::AndIOp>(isInexact, isEven),
                       a.binary<arith::AddIOp>(bits, step), bits);
  return arith::TruncFOp::create(
      builder, loc, withLanes(builder.getF32Type(), lanes),
      arith::BitcastOp::create(builder, loc, f64, odd));
}

//===----------------------------------------------------------------------===//
// KernelEmitter
//===----------------------------------------------------------------------===//

KernelEmitter::KernelEmitter(OpBuilder &builder, KernelOp kernel,
                             OptimizerOp optimizer, KernelTraits traits)
    : builder(builder), loc(kernel.getLoc()), kernel(kernel), traits(traits) {
  for (auto [index, role] : llvm::enumerate(optimizer.getRoles()))
    roleIndex[role] = index;
  numScalars = optimizer.getScalars().front().getTerminator()->getNumOperands();
}

void KernelEmitter::emitUniforms(llvm::function_ref<Value(UniformOp)> load) {
  llvm::DenseSet<Value> varying;
  auto addRole = [&](StringRef role) {
    if (!llvm::is_contained(roles, role))
      roles.push_back(role);
  };
  for (Operation &op : kernel.getBody().front()) {
    bool isVarying = isa<LoadOp, HashOp, StoreOp>(op) ||
                     llvm::any_of(op.getOperands(), [&](Value operand) {
                       return varying.contains(operand);
                     });
    if (auto loadOp = dyn_cast<LoadOp>(op))
      addRole(loadOp.getRole());
    if (auto store = dyn_cast<StoreOp>(op))
      addRole(store.getRole());
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      if (findSource(reduce)) {
        derivedReduces.push_back(reduce);
        continue;
      }
      if (isCountApart(reduce)) {
        countReduces.push_back(reduce);
        continue;
      }
      // What every element adds alike counts as many times as there are
      // elements; of a maximum once is enough.
      if (isVarying || reduce.getKind() == ReduceKind::Sum) {
        varyingOps.push_back(&op);
        varyingReduces.push_back(reduce);
      } else {
        uniformReduces.push_back(reduce);
      }
      if (isVarying)
        varying.insert(reduce.getResult());
      else
        uniforms.map(reduce.getResult(), uniforms.lookup(reduce.getValue()));
      continue;
    }
    if (isVarying) {
      varying.insert(op.result_begin(), op.result_end());
      varyingOps.push_back(&op);
    } else if (isa<SettleOp>(op)) {
      continue; // emitSettle's
    } else if (auto uniform = dyn_cast<UniformOp>(op)) {
      uniforms.map(uniform.getResult(), load(uniform));
    } else {
      emitPure(&op, uniforms, 1);
    }
  }
  findScreens();
}

/// Lanes that are computed at once: 4 give every pairwise cast its pair, and
/// every hash a word of packed bytes.
int64_t KernelEmitter::getGroup(int64_t lanes) const {
  return traits.hasVectors ? lanes : std::min<int64_t>(lanes, 4);
}

IRMapping KernelEmitter::splatUniforms(int64_t lanes) {
  ScalarBuilder a{builder, loc};
  lanes = getGroup(lanes);
  IRMapping mapping;
  for (auto [original, value] : uniforms.getValueMap())
    mapping.map(original, value);
  if (lanes > 1)
    for (Operation *op : varyingOps)
      for (Value operand : op->getOperands())
        if (Value value = uniforms.lookupOrNull(operand))
          if (value == mapping.lookup(operand))
            mapping.map(operand, a.splat(lanes, value));
  return mapping;
}

/// The value before it was stored, if `reduce` is about the magnitude of what a
/// value is in storage: an encode and decode, and uniform factors around them.
static Value getUnstored(Value stored,
                         llvm::function_ref<bool(Value)> isVarying) {
  bool hasCast = false;
  while (stored) {
    Operation *op = stored.getDefiningOp();
    if (isa_and_nonnull<DecodeOp, EncodeOp>(op)) {
      hasCast = true;
      stored = op->getOperand(0);
    } else if (isa_and_nonnull<arith::MulFOp>(op) &&
               !isVarying(op->getOperand(1))) {
      stored = op->getOperand(0);
    } else {
      break;
    }
  }
  return hasCast ? stored : Value();
}

/// The reduction whose maximum tells that of `reduce`, or null.
ReduceOp KernelEmitter::findSource(ReduceOp reduce) {
  Value magnitude = reduce.getMagnitude();
  auto isVarying = [&](Value value) { return !uniforms.contains(value); };
  Value before = magnitude ? getUnstored(magnitude, isVarying) : Value();
  if (!before)
    return {};
  for (ReduceOp candidate : varyingReduces)
    if (candidate.getMagnitude() == before)
      return candidate;
  return {};
}

Value KernelEmitter::emitDerived(ReduceOp reduce, ValueRange sums) {
  ScalarBuilder a{builder, loc};
  ReduceOp source = findSource(reduce);
  Value largest =
      sums[llvm::find(varyingReduces, source) - varyingReduces.begin()];
  if (!largest.getType().isF32())
    largest = a.bitcast(builder.getF32Type(), largest);
  // From the value's magnitude to that of what is stored, op by op.
  SmallVector<Operation *> steps;
  Value before = source.getMagnitude();
  for (Value value = reduce.getMagnitude(); value != before;
       value = value.getDefiningOp()->getOperand(0))
    steps.push_back(value.getDefiningOp());
  IRMapping mapping = uniforms;
  mapping.map(before, largest);
  for (Operation *step : llvm::reverse(steps))
    emitPure(step, mapping, 1);
  return a.binary<arith::AndIOp>(
      a.bitcast(builder.getI32Type(), mapping.lookup(reduce.getMagnitude())),
      a.i32(0x7FFFFFFF));
}

void KernelEmitter::findScreens() {
  for (ReduceOp reduce : varyingReduces)
    if (Value value = reduce.getMagnitude())
      if (std::optional<Screen> screen =
              Screen::create(reduce, value, [&](Value candidate) {
                return uniforms.contains(candidate);
              }))
        screens.push_back(*screen);
}

SmallVector<Value> KernelEmitter::zeroSums(int64_t lanes) {
  SmallVector<Value> zeros;
  for (ReduceOp reduce : varyingReduces) {
    Type type = !traits.hasVectors && reduce.getMagnitude()
                    ? builder.getF32Type()
                    : reduce.getValue().getType();
    // A hash of many lanes is summed in pairs already; see multiplyWide.
    int64_t width = !traits.hasVectors   ? 1
                    : type.isInteger(64) ? std::max<int64_t>(1, lanes / 2)
                                         : lanes;
    zeros.push_back(arith::ConstantOp::create(
        builder, loc, builder.getZeroAttr(withLanes(type, width))));
  }
  return zeros;
}

/// Emits `op`, which touches no memory, for `lanes` lanes.
void KernelEmitter::emitPure(Operation *op, IRMapping &mapping, int64_t lanes) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(mapping.lookup(operand));
  if (auto scale = dyn_cast<ComputeScaleOp>(op)) {
    mapping.map(scale.getResult(),
                expandComputeScale(builder, loc, operands[0], operands[1],
                                   *scale.getPayload()));
    return;
  }
  if (auto fma = dyn_cast<math::FmaOp>(op); fma && !traits.hasFma) {
    mapping.map(fma.getResult(), expandFma(builder, fma, operands));
    return;
  }
  if (traits.expand)
    if (Value result = traits.expand(op, operands)) {
      mapping.map(op->getResult(0), result);
      return;
    }
  Operation *copy = builder.clone(*op, mapping);
  for (auto [original, result] :
       llvm::zip(op->getResults(), copy->getResults())) {
    result.setType(withLanes(original.getType(), lanes));
    mapping.map(original, result);
  }
}

unsigned KernelEmitter::getAlignment(Type payload, int64_t lanes) const {
  unsigned size = payload.getIntOrFloatBitWidth() / 8;
  auto whole = static_cast<unsigned>(size * lanes);
  return lanes == 1 ? size : std::max(size, std::min(traits.alignment, whole));
}

Value KernelEmitter::emitLoad(LoadOp load, Value address, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  return a.load(withLanes(asInteger(load.getType()), lanes), address,
                getAlignment(load.getType(), 1));
}

/// One group of lanes after the other, then their hashes, then whole vectors
/// out. Nothing but a reduction uses a hash.
SmallVector<Value> KernelEmitter::emitElements(const IRMapping &mapping,
                                               Load loadLanes, Address address,
                                               Value index, int64_t lanes,
                                               ValueRange sums) {
  ScalarBuilder a{builder, loc};
  llvm::MapVector<StoreOp, Value> stores;
  SmallVector<Value> results(sums);
  int64_t group = getGroup(lanes);
  SmallVector<IRMapping> late;
  for (int64_t offset = 0; offset < lanes; offset += group) {
    IRMapping values = mapping;
    size_t nextSum = 0;
    for (Operation *op : varyingOps) {
      if (isScreened(op, lanes))
        continue;
      if (auto load = dyn_cast<LoadOp>(op)) {
        Value value = loadLanes(load, offset, group);
        if (!load.getType().isF32())
          value = a.bitcast(withLanes(load.getType(), group), value);
        values.map(load.getResult(), value);
      } else if (auto store = dyn_cast<StoreOp>(op)) {
        Type integer = asInteger(store.getValue().getType());
        Value value = values.lookup(store.getValue());
        if (!store.getValue().getType().isF32())
          value = a.bitcast(withLanes(integer, group), value);
        Value &whole = stores[store];
        if (group == lanes) {
          whole = value;
          continue;
        }
        if (!whole)
          whole = arith::ConstantOp::create(
              builder, loc, builder.getZeroAttr(withLanes(integer, lanes)));
        whole = vector::InsertStridedSliceOp::create(builder, loc, value, whole,
                                                     offset, 1);
      } else if (isa<HashOp>(op)) {
        // Below.
      } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
        Value &sum = results[nextSum++];
        if (reduce.getValue().getDefiningOp<HashOp>())
          continue;
        const Screen *screen = findScreen(reduce, lanes);
        sum = screen ? reduceScreened(*screen, sum, values, group)
                     : reduceLanes(reduce, sum, values, group);
      } else if (auto count = dyn_cast<CountLossOp>(op)) {
        if (!traits.addCount)
          values.map(count.getResult(),
                     emitCount(count, values.lookup(count.getValue()), group));
      } else {
        emitPure(op, values, group);
      }
    }
    if (!countReduces.empty())
      emitGuardedCounts(values, results, group);
    late.push_back(values);
  }
  for (int64_t offset = 0; offset < lanes; offset += group) {
    IRMapping &values = late[offset / group];
    for (auto [number, reduce] : llvm::enumerate(varyingReduces))
      if (auto hash = ReduceOp(reduce).getValue().getDefiningOp<HashOp>()) {
        values.map(hash.getResult(),
                   emitHash(hash, values, index, offset, group));
        results[number] = reduceLanes(reduce, results[number], values, group);
      }
  }
  for (auto &[store, value] : stores) {
    Type payload = StoreOp(store).getValue().getType();
    Value place = address(StoreOp(store).getRole(), asInteger(payload));
    unsigned alignment = getAlignment(payload, lanes);
    a.store(value, place, alignment);
    if (traits.alsoStore)
      traits.alsoStore(store, value, place, alignment);
  }
  return results;
}

/// `sum` with the value of `reduce` in `lanes` lanes.
Value KernelEmitter::reduceLanes(ReduceOp reduce, Value sum, IRMapping &mapping,
                                 int64_t lanes) {
  ScalarBuilder a{builder, loc};
  bool isMax = reduce.getKind() == ReduceKind::Max;
  Value magnitude = traits.hasVectors ? Value() : reduce.getMagnitude();
  if (!magnitude) {
    Value value = mapping.lookup(reduce.getValue());
    auto add = [&](Value element) {
      sum = isMax ? a.binary<arith::MaxUIOp>(sum, element)
                  : a.binary<arith::AddIOp>(sum, element);
    };
    if (traits.hasVectors || !isa<VectorType>(value.getType())) {
      add(value);
      return sum;
    }
    // One after the other: a product is added as it is multiplied.
    for (int64_t lane = 0; lane < lanes; ++lane)
      add(vector::ExtractOp::create(builder, loc, value, lane));
    return sum;
  }
  // Magnitudes order as their bits do, and a NaN, which is the largest in bits,
  // wins the IEEE maximum: one instruction in place of two.
  Value value = mapping.lookup(magnitude);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    Value element =
        lanes == 1
            ? value
            : vector::ExtractOp::create(builder, loc, value, lane).getResult();
    sum = a.binary<arith::MaximumFOp>(
        sum, math::AbsFOp::create(builder, loc, element));
  }
  return sum;
}

/// The screen of `reduce` where vectors of `lanes` are worked on; single
/// elements are not worth one.
const Screen *KernelEmitter::findScreen(ReduceOp reduce, int64_t lanes) const {
  const auto *found = llvm::find_if(screens, [&](const Screen &screen) {
    return screen.getReduce() == reduce;
  });
  return lanes > 1 && found != screens.end() ? found : nullptr;
}

/// The two ops between a value and the reduction of its magnitude.
static std::pair<Operation *, Operation *> getMagnitudeOps(ReduceOp reduce) {
  Operation *mask = reduce.getValue().getDefiningOp();
  return {mask->getOperand(0).getDefiningOp(), mask};
}

/// Whether `op` is emitted only where a screen asks for it.
bool KernelEmitter::isScreened(Operation *op, int64_t lanes) const {
  return lanes > 1 && llvm::any_of(screens, [&](const Screen &screen) {
           auto [bits, mask] = getMagnitudeOps(screen.getReduce());
           return screen.contains(op) || op == bits || op == mask;
         });
}

/// `sum` with the values of a screened reduction. They are computed only if one
/// of them may be above it.
Value KernelEmitter::reduceScreened(const Screen &screen, Value sum,
                                    IRMapping &mapping, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  // Below, an underflow could hide a difference.
  constexpr float kLeast = 0x1p-100f;
  Value bound = screen.emitBound(builder, mapping, traits.approximateRoot);
  Value isBelow;
  if (sum.getType().isF32()) {
    Value largest = vector::ExtractOp::create(builder, loc, bound, 0);
    for (int64_t lane = 1; lane < lanes; ++lane)
      largest = a.binary<arith::MaximumFOp>(
          largest, vector::ExtractOp::create(builder, loc, bound, lane));
    Value least = arith::ConstantOp::create(builder, loc,
                                            builder.getF32FloatAttr(kLeast));
    isBelow = a.binary<arith::AndIOp>(
        arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE, largest,
                              sum),
        arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGE, sum,
                              least));
  } else {
    // Lanes of magnitudes' bits. A NaN's are above all others.
    Value bits = a.bitcast(sum.getType(), bound);
    Value least = a.splat(lanes, a.i32(llvm::bit_cast<uint32_t>(kLeast)));
    Value isLower = a.binary<arith::AndIOp>(
        a.compare(arith::CmpIPredicate::ule, bits, sum),
        a.compare(arith::CmpIPredicate::uge, sum, least));
    isBelow = vector::ReductionOp::create(builder, loc,
                                          vector::CombiningKind::AND, isLower);
  }
  auto choice = scf::IfOp::create(
      builder, loc, isBelow,
      [&](OpBuilder &nested, Location) {
        scf::YieldOp::create(nested, loc, sum);
      },
      [&](OpBuilder &nested, Location) {
        OpBuilder::InsertionGuard guard(builder);
        builder.setInsertionPoint(nested.getInsertionBlock(),
                                  nested.getInsertionPoint());
        IRMapping values = mapping;
        for (Operation *op : screen.getOps())
          emitPure(op, values, lanes);
        auto [bits, mask] = getMagnitudeOps(screen.getReduce());
        emitPure(bits, values, lanes);
        emitPure(mask, values, lanes);
        scf::YieldOp::create(
            builder, loc, reduceLanes(screen.getReduce(), sum, values, lanes));
      });
  return choice.getResult(0);
}

size_t KernelEmitter::getUniformIndex(UniformOp op) const {
  size_t index = 0;
  plan::RoleUniform kind;
  switch (op.getKind()) {
  case UniformKind::Scalar:
    op.getName().getAsInteger(10, index);
    return index;
  case UniformKind::ScaleInv:
    kind = plan::RoleUniform::ScaleInv;
    break;
  case UniformKind::OldScale:
    kind = plan::RoleUniform::OldScale;
    break;
  case UniformKind::Amax:
    kind = plan::RoleUniform::Amax;
    break;
  case UniformKind::History:
    kind = plan::RoleUniform::History;
    break;
  case UniformKind::StoredAmax:
    kind = plan::RoleUniform::StoredAmax;
    break;
  case UniformKind::StoredRatio:
    kind = plan::RoleUniform::StoredRatio;
    break;
  case UniformKind::Settled:
    kind = plan::RoleUniform::Settled;
    break;
  }
  return getUniformIndex(op.getName(), kind);
}

size_t KernelEmitter::getUniformIndex(StringRef role,
                                      plan::RoleUniform kind) const {
  return plan::uniformIndex(numScalars, roleIndex.lookup(role), kind);
}

size_t KernelEmitter::getResultIndex(ReduceOp op) const {
  plan::RoleResult kind;
  switch (op.getMeaning()) {
  case ResultKind::Fingerprint:
    return plan::fingerprintIndex(roleIndex.size());
  case ResultKind::Amax:
    kind = plan::RoleResult::Amax;
    break;
  case ResultKind::Scale:
    kind = plan::RoleResult::Scale;
    break;
  case ResultKind::Stored:
    kind = plan::RoleResult::Stored;
    break;
  case ResultKind::Ratio:
    kind = plan::RoleResult::Ratio;
    break;
  case ResultKind::Saturated:
    kind = plan::RoleResult::Saturated;
    break;
  case ResultKind::Flushed:
    kind = plan::RoleResult::Flushed;
    break;
  }
  return plan::resultIndex(roleIndex.lookup(*op.getRole()), kind);
}
