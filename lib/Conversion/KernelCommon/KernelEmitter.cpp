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

static uint32_t toSingleBits(APFloat value) {
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

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

/// count_loss of `lanes` values. Magnitudes compare as signed integers, which
/// every instruction set has.
Value KernelEmitter::emitCount(CountLossOp count, Value value, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  const llvm::fltSemantics &semantics =
      cast<FloatType>(count.getPayload().getType()).getFloatSemantics();
  Type i32 = withLanes(builder.getI32Type(), lanes);
  auto constant = [&](uint32_t bits) {
    return lanes == 1 ? a.i32(bits) : a.splat(lanes, a.i32(bits));
  };
  Value bits =
      a.binary<arith::AndIOp>(a.bitcast(i32, value), constant(0x7FFFFFFF));
  Value isLost;
  if (count.getKind() == ResultKind::Flushed) {
    // Halving steps the exponent down by one. 0 < bits <= half as one signed
    // compare: adding 2^31 - 1 turns zero into the largest integer and
    // everything else into a negative one.
    uint32_t halfSmallest =
        toSingleBits(APFloat::getSmallest(semantics)) - (1u << 23);
    isLost = a.compare(arith::CmpIPredicate::slt,
                       a.binary<arith::AddIOp>(bits, constant(0x7FFFFFFF)),
                       constant(0x80000000 + halfSmallest));
  } else {
    isLost = a.compare(arith::CmpIPredicate::sgt, bits,
                       constant(toSingleBits(APFloat::getLargest(semantics))));
  }
  return arith::ExtUIOp::create(builder, loc, i32, isLost);
}

bool KernelEmitter::isCountApart(ReduceOp reduce) const {
  return traits.addCount && reduce.getValue().getDefiningOp<CountLossOp>();
}

/// Whether a value so far may be above the largest number: the amax tells that
/// the kernel keeps of values before they were scaled. Null if it keeps none.
Value KernelEmitter::findSaturation(CountLossOp count, ValueRange sums) {
  ScalarBuilder a{builder, loc};
  auto scaled = count.getValue().getDefiningOp<arith::MulFOp>();
  if (!scaled || !uniforms.contains(scaled.getRhs()))
    return {};
  APFloat largest = APFloat::getLargest(
      cast<FloatType>(count.getPayload().getType()).getFloatSemantics());
  Value limit = a.bitcast(builder.getF32Type(), a.i32(toSingleBits(largest)));
  for (auto [reduce, sum] : llvm::zip(varyingReduces, sums))
    if (reduce.getMagnitude() == scaled.getLhs()) {
      // Scales are powers of two, so the limit is exact, or too low.
      Value scale = uniforms.lookup(scaled.getRhs());
      return arith::CmpFOp::create(
          builder, loc, arith::CmpFPredicate::UGT, sum,
          arith::DivFOp::create(builder, loc, limit, scale));
    }
  return {};
}

/// Adds the counts of losses in `lanes` lanes. Packed codes are tested a word
/// at a time for one that is zero, or the largest number or more, amaxes for
/// one that is too large; values are looked at only where there is one.
void KernelEmitter::emitGuardedCounts(IRMapping &mapping, ValueRange sums,
                                      int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i32 = builder.getI32Type();
  /// Of fields of a width, some bits; their topmost ones say what was found.
  struct Found {
    Value notZero, isLargest;
  };
  llvm::MapVector<unsigned, Found> found;
  Value isSuspicious;
  auto suspect = [&](Value isOne) {
    isSuspicious =
        isSuspicious ? a.binary<arith::OrIOp>(isSuspicious, isOne) : isOne;
  };
  auto fieldsOf = [&](unsigned width) -> int64_t {
    return lanes == 1 ? 1 : 32 / width;
  };
  auto repeat = [&](uint32_t value, unsigned width) {
    uint32_t word = 0;
    for (int64_t field = 0; field < fieldsOf(width); ++field)
      word |= value << (field * width);
    return word;
  };
  for (ReduceOp reduce : countReduces) {
    auto count = reduce.getValue().getDefiningOp<CountLossOp>();
    auto payload = cast<FloatType>(count.getPayload().getType());
    bool isSaturated = count.getKind() == ResultKind::Saturated;
    if (isSaturated)
      if (Value isOne = findSaturation(count, sums)) {
        suspect(isOne);
        continue;
      }
    unsigned width = payload.getIntOrFloatBitWidth();
    Value codes = a.bitcast(withLanes(builder.getIntegerType(width), lanes),
                            mapping.lookup(count.getPayload()));
    int64_t words = lanes / fieldsOf(width);
    codes = lanes == 1
                ? arith::ExtUIOp::create(builder, loc, i32, codes).getResult()
                : vector::BitCastOp::create(
                      builder, loc, VectorType::get({words}, i32), codes)
                      .getResult();
    // Adding 0x7F.. to a magnitude sets a field's topmost bit unless it is
    // zero; adding what the largest number lacks to that bit, if it is as
    // large.
    uint32_t magnitude = (1u << (width - 1)) - 1;
    uint64_t largest = APFloat::getLargest(payload.getFloatSemantics())
                           .bitcastToAPInt()
                           .getZExtValue();
    uint32_t addend = isSaturated
                          ? magnitude + 1 - static_cast<uint32_t>(largest)
                          : magnitude;
    for (int64_t word = 0; word < words; ++word) {
      Value code = lanes == 1
                       ? codes
                       : vector::ExtractOp::create(builder, loc, codes, word)
                             .getResult();
      Value set = a.binary<arith::AddIOp>(
          a.binary<arith::AndIOp>(code, a.i32(repeat(magnitude, width))),
          a.i32(repeat(addend, width)));
      Value &all = isSaturated ? found[width].isLargest : found[width].notZero;
      if (!all)
        all = set;
      else
        all = isSaturated ? a.binary<arith::OrIOp>(all, set)
                          : a.binary<arith::AndIOp>(all, set);
    }
  }
  for (auto &[width, bits] : found) {
    Value top = a.i32(repeat(1u << (width - 1), width));
    if (bits.notZero)
      suspect(a.compare(arith::CmpIPredicate::ne,
                        a.binary<arith::AndIOp>(bits.notZero, top), top));
    if (bits.isLargest)
      suspect(a.compare(arith::CmpIPredicate::ne,
                        a.binary<arith::AndIOp>(bits.isLargest, top),
                        a.i32(0)));
  }
  auto look = scf::IfOp::create(builder, loc, isSuspicious,
                                /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&look.getThenRegion().front());
  for (ReduceOp reduce : countReduces) {
    auto count = reduce.getValue().getDefiningOp<CountLossOp>();
    Value lost = emitCount(count, mapping.lookup(count.getValue()), lanes);
    if (lanes > 1)
      lost = vector::ReductionOp::create(builder, loc,
                                         vector::CombiningKind::ADD, lost);
    traits.addCount(reduce, lost);
  }
}

//===----------------------------------------------------------------------===//
// Fingerprints
//===----------------------------------------------------------------------===//

/// The words of msamp.hash: payloads laid end to end, largest first.
SmallVector<Value> KernelEmitter::packWords(HashOp hash, IRMapping &mapping,
                                            int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i32 = withLanes(builder.getI32Type(), lanes);
  SmallVector<Value> payloads(hash.getPayloads());
  llvm::stable_sort(payloads, [](Value left, Value right) {
    return left.getType().getIntOrFloatBitWidth() >
           right.getType().getIntOrFloatBitWidth();
  });
  if (traits.permute && lanes == 4)
    return permuteWords(payloads, mapping, lanes);
  auto constant = [&](uint32_t value) {
    return lanes == 1 ? a.i32(value) : a.splat(lanes, a.i32(value));
  };
  SmallVector<Value> words;
  unsigned used = 32;
  for (Value payload : payloads) {
    unsigned width = payload.getType().getIntOrFloatBitWidth();
    Value code = a.bitcast(
        withLanes(IntegerType::get(builder.getContext(), width), lanes),
        mapping.lookup(payload));
    if (width < 32)
      code = arith::ExtUIOp::create(builder, loc, i32, code);
    if (used + width > 32) {
      words.push_back(code);
      used = width;
      continue;
    }
    Value placed = a.binary<arith::ShLIOp>(code, constant(used));
    words.back() = a.binary<arith::OrIOp>(words.back(), placed);
    used += width;
  }
  if (words.size() % 2 != 0)
    words.push_back(constant(0));
  return words;
}

/// packWords where payloads of several lanes lie packed in registers: an
/// element's word is put together from bytes of two such registers at a time.
SmallVector<Value> KernelEmitter::permuteWords(ArrayRef<Value> payloads,
                                               IRMapping &mapping,
                                               int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i32 = builder.getI32Type();
  // [word][lane], and the bits in use of each word. `first` is where a word's
  // bytes begin in its register: a word of one payload is not yet moved down,
  // since the next one's bytes can come beside its own in the same instruction.
  SmallVector<SmallVector<Value>> words;
  SmallVector<unsigned> used;
  SmallVector<SmallVector<uint32_t>> first;
  for (Value payload : payloads) {
    unsigned width = payload.getType().getIntOrFloatBitWidth();
    unsigned bytes = width / 8;
    Value packed = vector::BitCastOp::create(
        builder, loc, VectorType::get({lanes * width / 32}, i32),
        a.bitcast(VectorType::get({lanes}, builder.getIntegerType(width)),
                  mapping.lookup(payload)));
    bool isNew = words.empty() || used.back() + width > 32;
    if (isNew) {
      words.emplace_back(lanes);
      first.emplace_back(lanes);
      used.push_back(0);
    }
    unsigned begin = used.back() / 8;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Value source =
          vector::ExtractOp::create(builder, loc, packed, lane * width / 32);
      auto place = static_cast<uint32_t>(lane * bytes % 4);
      Value &word = words.back()[lane];
      uint32_t &wordPlace = first.back()[lane];
      if (isNew) {
        word = source;
        wordPlace = place;
        continue;
      }
      // What lies above the two is cut off below.
      uint32_t selector = 0;
      for (uint32_t byte = 0; byte < begin + bytes; ++byte)
        selector |= (byte < begin ? wordPlace + byte : 4 + place + byte - begin)
                    << (4 * byte);
      word = traits.permute(word, source, selector);
      wordPlace = 0;
    }
    used.back() += width;
  }
  SmallVector<Value> results;
  for (auto [lanesOfWord, bits, places] : llvm::zip(words, used, first)) {
    for (int64_t lane = 0; lane < lanes; ++lane)
      if (places[lane] != 0)
        lanesOfWord[lane] = a.binary<arith::ShRUIOp>(lanesOfWord[lane],
                                                     a.i32(8 * places[lane]));
    Value word = vector::FromElementsOp::create(
        builder, loc, VectorType::get({lanes}, i32), lanesOfWord);
    if (bits < 32)
      word = a.binary<arith::AndIOp>(word,
                                     a.splat(lanes, a.i32((1u << bits) - 1)));
    results.push_back(word);
  }
  if (results.size() % 2 != 0)
    results.push_back(a.splat(lanes, a.i32(0)));
  return results;
}

/// The hash of `lanes` elements from `laneOffset` after `index` on.
Value KernelEmitter::emitHash(HashOp hash, IRMapping &mapping, Value index,
                              int64_t laneOffset, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i32 = builder.getI32Type();
  Value low = arith::TruncIOp::create(builder, loc, i32, index);
  // Loops do not cross a multiple of 2^32, so all lanes share the upper half.
  Value high = arith::TruncIOp::create(
      builder, loc, i32, a.binary<arith::ShRUIOp>(index, a.i64(32)));
  auto key = [&](uint32_t factor, Value offset) -> Value {
    Value base = a.binary<arith::AddIOp>(
        a.binary<arith::MulIOp>(low, a.i32(factor)), offset);
    if (lanes == 1)
      return base;
    SmallVector<int32_t> steps;
    for (int64_t lane = laneOffset; lane < laneOffset + lanes; ++lane)
      steps.push_back(
          static_cast<int32_t>(static_cast<uint32_t>(lane) * factor));
    Value perLane = arith::ConstantOp::create(
        builder, loc,
        DenseElementsAttr::get(VectorType::get({lanes}, i32),
                               ArrayRef<int32_t>(steps)));
    return a.binary<arith::AddIOp>(a.splat(lanes, base), perLane);
  };
  SmallVector<Value> words = packWords(hash, mapping, lanes);
  Value sum;
  for (uint32_t pair = 0; pair < words.size() / 2; ++pair) {
    Value u = key(plan::kHashIndexU, a.i32(pair * plan::kHashPairU));
    Value v = key(plan::kHashIndexV,
                  a.binary<arith::AddIOp>(
                      a.binary<arith::MulIOp>(high, a.i32(plan::kHashHighV)),
                      a.i32(pair * plan::kHashPairV + 1)));
    Value product =
        multiplyWide(a.binary<arith::AddIOp>(words[2 * pair], u),
                     a.binary<arith::AddIOp>(words[2 * pair + 1], v), lanes);
    sum = sum ? a.binary<arith::AddIOp>(sum, product) : product;
  }
  return sum;
}

/// Products of 32-bit words are 64 bits wide. In vectors the even and the odd
/// ones are multiplied apart and added, which needs no widening: the result has
/// half the lanes, each the sum of a pair.
Value KernelEmitter::multiplyWide(Value left, Value right, int64_t lanes) {
  ScalarBuilder a{builder, loc};
  Type i64 = builder.getI64Type();
  if (lanes == 1 || !traits.hasVectors) {
    Type wide = withLanes(i64, lanes);
    return a.binary<arith::MulIOp>(
        arith::ExtUIOp::create(builder, loc, wide, left),
        arith::ExtUIOp::create(builder, loc, wide, right));
  }
  Type pairs = VectorType::get({lanes / 2}, i64);
  Value mask = a.splat(lanes / 2, a.i64(0xFFFFFFFF));
  Value half = a.splat(lanes / 2, a.i64(32));
  Value leftPairs = vector::BitCastOp::create(builder, loc, pairs, left);
  Value rightPairs = vector::BitCastOp::create(builder, loc, pairs, right);
  Value even =
      a.binary<arith::MulIOp>(a.binary<arith::AndIOp>(leftPairs, mask),
                              a.binary<arith::AndIOp>(rightPairs, mask));
  Value odd =
      a.binary<arith::MulIOp>(a.binary<arith::ShRUIOp>(leftPairs, half),
                              a.binary<arith::ShRUIOp>(rightPairs, half));
  return a.binary<arith::AddIOp>(even, odd);
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
