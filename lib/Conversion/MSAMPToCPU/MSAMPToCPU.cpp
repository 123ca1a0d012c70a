// Kernels of a launch to CPU functions, one for each instruction set.
// Before: kernels have phases.
// After:  a nested module @cpu of llvm.func ops over vectors of 8 or 16
//         elements, in which only decode and encode are msamp's.
// A kernel's region is emitted twice, for a vector and for one element: the
// tail has the bits of the body by construction, and needs no mask. What is
// uniform stays scalar and is computed once a call.

#include "msamp/Conversion/Passes.h"
#include "msamp_rt/plan_format.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/APFloat.h"

namespace mlir::msamp {
#define GEN_PASS_DEF_CONVERTMSAMPTOCPU
#include "msamp/Conversion/Passes.h.inc"
} // namespace mlir::msamp

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

namespace {

struct IsaTraits {
  StringRef suffix;
  StringRef cpu;
  int64_t lanes;
  bool hasF16;
  bool hasFma;
};
constexpr IsaTraits kIsas[] = {
    {plan::kIsaSuffixes[0], plan::kIsaNames[0], 8, false, false},
    {plan::kIsaSuffixes[1], plan::kIsaNames[1], 16, true, true},
    {plan::kIsaSuffixes[2], plan::kIsaNames[2], 16, true, true},
};

/// Scalar arithmetic with short names.
struct Arith {
  OpBuilder &builder;
  Location loc;

  Value i32(uint32_t value) {
    return arith::ConstantOp::create(
        builder, loc, builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  Value i64(int64_t value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getI64IntegerAttr(value));
  }
  template <typename Op> Value binary(Value left, Value right) {
    return Op::create(builder, loc, left, right);
  }
  Value compare(arith::CmpIPredicate predicate, Value left, Value right) {
    return arith::CmpIOp::create(builder, loc, predicate, left, right);
  }
  Value select(Value condition, Value whenTrue, Value whenFalse) {
    return arith::SelectOp::create(builder, loc, condition, whenTrue,
                                   whenFalse);
  }
  Value bitcast(Type type, Value value) {
    return arith::BitcastOp::create(builder, loc, type, value);
  }
  Value splat(int64_t lanes, Value value) {
    return vector::BroadcastOp::create(
        builder, loc, VectorType::get({lanes}, value.getType()), value);
  }
  /// Address of element `index` of `type` after `base`.
  Value address(Value base, Type type, Value index) {
    return LLVM::GEPOp::create(builder, loc, base.getType(), type, base,
                               ArrayRef<LLVM::GEPArg>{index});
  }
  Value address(Value base, Type type, int32_t index) {
    return LLVM::GEPOp::create(builder, loc, base.getType(), type, base,
                               ArrayRef<LLVM::GEPArg>{index});
  }
  Value load(Type type, Value address, unsigned alignment) {
    return LLVM::LoadOp::create(builder, loc, type, address, alignment);
  }
  void store(Value value, Value address, unsigned alignment) {
    LLVM::StoreOp::create(builder, loc, value, address, alignment);
  }
};

Type asInteger(Type payload) {
  return payload.isF32() ? payload
                         : IntegerType::get(payload.getContext(),
                                            payload.getIntOrFloatBitWidth());
}

Type withLanes(Type element, int64_t lanes) {
  return lanes == 1 ? element : Type(VectorType::get({lanes}, element));
}

//===----------------------------------------------------------------------===//
// Expansions of single ops
//===----------------------------------------------------------------------===//

/// compute_scale on f32, by the exponents; see ComputeScaleOp::computeBits.
Value expandComputeScale(OpBuilder &builder, Location loc, Value amax,
                         Value oldScale, Type payload) {
  Arith a{builder, loc};
  bool ignored;
  APFloat largest =
      APFloat::getLargest(cast<FloatType>(payload).getFloatSemantics());
  largest.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                  &ignored);
  uint32_t maxBits = largest.bitcastToAPInt().getZExtValue();
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
Value expandFma(OpBuilder &builder, math::FmaOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Arith a{builder, loc};
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

/// powi as the loop that defines it.
Value expandPowi(OpBuilder &builder, PowiOp op, ValueRange operands) {
  Location loc = op.getLoc();
  Arith a{builder, loc};
  Value base = operands[0], exponent = operands[1];
  Value one = arith::ConstantOp::create(
      builder, loc, builder.getFloatAttr(base.getType(), 1.0));
  Value zero = a.i64(0);
  Value isNegative = a.compare(arith::CmpIPredicate::slt, exponent, zero);
  Value count =
      a.select(isNegative, a.binary<arith::SubIOp>(zero, exponent), exponent);
  SmallVector<Value> inits{one, base, count};
  auto loop = scf::WhileOp::create(
      builder, loc, ValueRange(inits).getTypes(), inits,
      [&](OpBuilder &nested, Location, ValueRange values) {
        Arith n{nested, loc};
        scf::ConditionOp::create(
            nested, loc,
            n.compare(arith::CmpIPredicate::ne, values[2], n.i64(0)), values);
      },
      [&](OpBuilder &nested, Location, ValueRange values) {
        Arith n{nested, loc};
        Value isOdd =
            n.compare(arith::CmpIPredicate::ne,
                      n.binary<arith::AndIOp>(values[2], n.i64(1)), n.i64(0));
        Value product = n.binary<arith::MulFOp>(values[0], values[1]);
        Value square = n.binary<arith::MulFOp>(values[1], values[1]);
        Value rest = n.binary<arith::ShRUIOp>(values[2], n.i64(1));
        scf::YieldOp::create(
            nested, loc,
            ValueRange{n.select(isOdd, product, values[0]), square, rest});
      });
  Value power = loop.getResult(0);
  return a.select(isNegative, a.binary<arith::DivFOp>(one, power), power);
}

//===----------------------------------------------------------------------===//
// One kernel for one instruction set
//===----------------------------------------------------------------------===//

class KernelLowering {
public:
  KernelLowering(KernelOp kernel, OptimizerOp optimizer,
                 const IsaTraits &traits, LLVM::LLVMFuncOp function)
      : kernel(kernel), traits(traits), function(function),
        builder(function.getContext()), loc(kernel.getLoc()) {
    for (auto [index, role] : llvm::enumerate(optimizer.getRoles()))
      roleIndex[role] = index;
    numScalars =
        optimizer.getScalars().front().getTerminator()->getNumOperands();
  }

  void run() {
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    emitUniforms();
    Arith a{builder, loc};
    Value count = entry->getArgument(3);
    Value zero = a.i64(0);
    Value whole = a.binary<arith::AndIOp>(count, a.i64(-traits.lanes));
    SmallVector<Value> sums = emitLoop(zero, whole, traits.lanes, {});
    sums = emitLoop(whole, count, 1, reduceLanes(sums));
    combineResults(sums);
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }

private:
  Value getOperandPointer(StringRef role) {
    Arith a{builder, loc};
    Value operands = function.getArgument(0);
    Type pointer = operands.getType();
    return a.load(pointer,
                  a.address(operands, pointer,
                            static_cast<int32_t>(roleIndex.lookup(role))),
                  8);
  }

  Value getUniform(UniformOp op) {
    size_t index = 0;
    if (op.getKind() == UniformKind::Scalar) {
      op.getName().getAsInteger(10, index);
    } else {
      plan::RoleUniform kind =
          op.getKind() == UniformKind::ScaleInv   ? plan::RoleUniform::ScaleInv
          : op.getKind() == UniformKind::OldScale ? plan::RoleUniform::OldScale
          : op.getKind() == UniformKind::Amax     ? plan::RoleUniform::Amax
                                                  : plan::RoleUniform::History;
      index =
          plan::uniformIndex(numScalars, roleIndex.lookup(op.getName()), kind);
    }
    Arith a{builder, loc};
    Type f32 = builder.getF32Type();
    return a.load(
        f32,
        a.address(function.getArgument(1), f32, static_cast<int32_t>(index)),
        4);
  }

  /// Emits what is the same for all elements, and the pointers.
  void emitUniforms() {
    llvm::DenseSet<Value> varying;
    for (Operation &op : kernel.getBody().front()) {
      bool isVarying = isa<LoadOp, HashOp>(op) ||
                       llvm::any_of(op.getOperands(), [&](Value operand) {
                         return varying.contains(operand);
                       });
      if (auto load = dyn_cast<LoadOp>(op))
        pointers.try_emplace(load.getRole(), getOperandPointer(load.getRole()));
      if (auto store = dyn_cast<StoreOp>(op))
        pointers.try_emplace(store.getRole(),
                             getOperandPointer(store.getRole()));
      if (isVarying || isa<StoreOp>(op)) {
        varying.insert(op.result_begin(), op.result_end());
        varyingOps.push_back(&op);
        continue;
      }
      if (auto reduce = dyn_cast<ReduceOp>(op)) {
        uniformReduces.push_back(reduce);
        uniforms.map(reduce.getResult(), uniforms.lookup(reduce.getValue()));
        continue;
      }
      if (auto uniform = dyn_cast<UniformOp>(op))
        uniforms.map(uniform.getResult(), getUniform(uniform));
      else
        emitPure(&op, uniforms, 1);
    }
  }

  /// Emits `op`, which touches no memory, for `lanes` lanes.
  void emitPure(Operation *op, IRMapping &mapping, int64_t lanes) {
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
    Operation *copy = builder.clone(*op, mapping);
    for (auto [original, result] :
         llvm::zip(op->getResults(), copy->getResults())) {
      result.setType(withLanes(original.getType(), lanes));
      mapping.map(original, result);
    }
  }

  /// A loop from `begin` to `end` by `lanes`; accumulators start from `inits`,
  /// or from zero. Returns the accumulators.
  SmallVector<Value> emitLoop(Value begin, Value end, int64_t lanes,
                              SmallVector<Value> inits) {
    Arith a{builder, loc};
    // Splats of uniforms, once before the loop.
    IRMapping loopMapping;
    for (auto [original, value] : uniforms.getValueMap())
      loopMapping.map(original, value);
    if (lanes > 1)
      for (Operation *op : varyingOps)
        for (Value operand : op->getOperands())
          if (Value value = uniforms.lookupOrNull(operand))
            if (value == loopMapping.lookup(operand))
              loopMapping.map(operand, a.splat(lanes, value));
    if (inits.empty())
      for (Operation *op : varyingOps)
        if (auto reduce = dyn_cast<ReduceOp>(op)) {
          // A hash of 16 lanes is summed in pairs already; see emitHash.
          Type type = reduce.getValue().getType();
          int64_t width = type.isInteger(64) ? lanes / 2 : lanes;
          inits.push_back(arith::ConstantOp::create(
              builder, loc, builder.getZeroAttr(withLanes(type, width))));
        }
    auto loop = scf::ForOp::create(
        builder, loc, begin, end, a.i64(lanes), inits,
        [&](OpBuilder &nested, Location, Value position, ValueRange sums) {
          OpBuilder::InsertionGuard guard(builder);
          builder.setInsertionPoint(nested.getInsertionBlock(),
                                    nested.getInsertionPoint());
          scf::YieldOp::create(builder, loc,
                               emitBody(loopMapping, position, lanes, sums));
        });
    return SmallVector<Value>(loop.getResults());
  }

  /// Emits the varying ops for the elements at `position`.
  SmallVector<Value> emitBody(IRMapping mapping, Value position, int64_t lanes,
                              ValueRange sums) {
    Arith a{builder, loc};
    SmallVector<Value> results;
    for (Operation *op : varyingOps) {
      if (auto load = dyn_cast<LoadOp>(op)) {
        Type payload = load.getType(), integer = asInteger(payload);
        Value value = a.load(
            withLanes(integer, lanes),
            a.address(pointers.lookup(load.getRole()), integer, position),
            payload.getIntOrFloatBitWidth() / 8);
        mapping.map(load.getResult(),
                    payload.isF32()
                        ? value
                        : a.bitcast(withLanes(payload, lanes), value));
      } else if (auto store = dyn_cast<StoreOp>(op)) {
        Type payload = store.getValue().getType(), integer = asInteger(payload);
        Value value = mapping.lookup(store.getValue());
        if (!payload.isF32())
          value = a.bitcast(withLanes(integer, lanes), value);
        a.store(value,
                a.address(pointers.lookup(store.getRole()), integer, position),
                payload.getIntOrFloatBitWidth() / 8);
      } else if (auto hash = dyn_cast<HashOp>(op)) {
        mapping.map(hash.getResult(), emitHash(hash, mapping, position, lanes));
      } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
        Value sum = sums[results.size()];
        Value value = mapping.lookup(reduce.getValue());
        results.push_back(reduce.getKind() == ReduceKind::Max
                              ? a.binary<arith::MaxUIOp>(sum, value)
                              : a.binary<arith::AddIOp>(sum, value));
      } else {
        emitPure(op, mapping, lanes);
      }
    }
    return results;
  }

  /// The words of msamp.hash: payloads laid end to end, largest first.
  SmallVector<Value> packWords(HashOp hash, IRMapping &mapping, int64_t lanes) {
    Arith a{builder, loc};
    Type i32 = withLanes(builder.getI32Type(), lanes);
    SmallVector<Value> payloads(hash.getPayloads());
    llvm::stable_sort(payloads, [](Value left, Value right) {
      return left.getType().getIntOrFloatBitWidth() >
             right.getType().getIntOrFloatBitWidth();
    });
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

  /// Products of 32-bit words are 64 bits wide. For 16 lanes the even and the
  /// odd ones are multiplied apart and added, which needs no widening: the
  /// result has 8 lanes, each the sum of a pair.
  Value emitHash(HashOp hash, IRMapping &mapping, Value position,
                 int64_t lanes) {
    Arith a{builder, loc};
    Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
    Value index = a.binary<arith::AddIOp>(function.getArgument(2), position);
    Value low = arith::TruncIOp::create(builder, loc, i32, index);
    // Calls do not cross a multiple of 2^32, so all lanes share the upper half.
    Value high = arith::TruncIOp::create(
        builder, loc, i32, a.binary<arith::ShRUIOp>(index, a.i64(32)));
    auto key = [&](uint32_t factor, Value offset) -> Value {
      Value base = a.binary<arith::AddIOp>(
          a.binary<arith::MulIOp>(low, a.i32(factor)), offset);
      if (lanes == 1)
        return base;
      SmallVector<int32_t> steps;
      for (uint32_t lane = 0; lane < lanes; ++lane)
        steps.push_back(static_cast<int32_t>(lane * factor));
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
      Value product = multiplyWide(
          a.binary<arith::AddIOp>(words[2 * pair], u),
          a.binary<arith::AddIOp>(words[2 * pair + 1], v), lanes, i64);
      sum = sum ? a.binary<arith::AddIOp>(sum, product) : product;
    }
    return sum;
  }

  Value multiplyWide(Value left, Value right, int64_t lanes, Type i64) {
    Arith a{builder, loc};
    if (lanes == 1)
      return a.binary<arith::MulIOp>(
          arith::ExtUIOp::create(builder, loc, i64, left),
          arith::ExtUIOp::create(builder, loc, i64, right));
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

  SmallVector<Value> reduceLanes(ArrayRef<Value> sums) {
    SmallVector<Value> results;
    for (Operation *op : varyingOps)
      if (auto reduce = dyn_cast<ReduceOp>(op))
        results.push_back(vector::ReductionOp::create(
            builder, loc,
            reduce.getKind() == ReduceKind::Max ? vector::CombiningKind::MAXUI
                                                : vector::CombiningKind::ADD,
            sums[results.size()]));
    return results;
  }

  size_t getResultIndex(ReduceOp reduce) {
    if (reduce.getMeaning() == ResultKind::Fingerprint)
      return plan::fingerprintIndex(roleIndex.size());
    plan::RoleResult kind =
        reduce.getMeaning() == ResultKind::Amax    ? plan::RoleResult::Amax
        : reduce.getMeaning() == ResultKind::Scale ? plan::RoleResult::Scale
        : reduce.getMeaning() == ResultKind::Saturated
            ? plan::RoleResult::Saturated
            : plan::RoleResult::Flushed;
    return plan::resultIndex(roleIndex.lookup(*reduce.getRole()), kind);
  }

  /// Adds what this call found to the caller's results.
  void combineResults(ArrayRef<Value> sums) {
    size_t next = 0;
    for (Operation *op : varyingOps)
      if (auto reduce = dyn_cast<ReduceOp>(op))
        combine(reduce, sums[next++]);
    for (ReduceOp reduce : uniformReduces) {
      Value value = uniforms.lookup(reduce.getValue());
      // What every element adds alike is added `count` times.
      if (reduce.getKind() == ReduceKind::Sum) {
        Arith a{builder, loc};
        if (!value.getType().isInteger(64))
          value =
              arith::ExtUIOp::create(builder, loc, builder.getI64Type(), value);
        value = a.binary<arith::MulIOp>(value, function.getArgument(3));
      }
      combine(reduce, value);
    }
  }

  void combine(ReduceOp reduce, Value value) {
    Arith a{builder, loc};
    Type i64 = builder.getI64Type();
    if (!value.getType().isInteger(64))
      value = arith::ExtUIOp::create(builder, loc, i64, value);
    Value slot = a.address(function.getArgument(4), i64,
                           static_cast<int32_t>(getResultIndex(reduce)));
    Value old = a.load(i64, slot, 8);
    a.store(reduce.getKind() == ReduceKind::Max
                ? a.binary<arith::MaxUIOp>(old, value)
                : a.binary<arith::AddIOp>(old, value),
            slot, 8);
  }

  KernelOp kernel;
  const IsaTraits &traits;
  LLVM::LLVMFuncOp function;
  OpBuilder builder;
  Location loc;
  size_t numScalars;
  llvm::StringMap<size_t> roleIndex;
  llvm::StringMap<Value> pointers;
  /// Scalar values of everything that is uniform.
  IRMapping uniforms;
  SmallVector<Operation *> varyingOps;
  SmallVector<ReduceOp> uniformReduces;
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

struct ConvertMSAMPToCPU
    : public mlir::msamp::impl::ConvertMSAMPToCPUBase<ConvertMSAMPToCPU> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    for (auto launch :
         llvm::make_early_inc_range(getOperation().getOps<LaunchOp>()))
      if (failed(convert(launch, symbols)))
        return signalPassFailure();
  }

  LogicalResult convert(LaunchOp launch, SymbolTable &symbols) {
    auto optimizer = symbols.lookup<OptimizerOp>(launch.getOptimizer());
    if (!optimizer)
      return launch.emitOpError()
             << "optimizer @" << launch.getOptimizer() << " is not defined";
    if (!launch.getSchedule())
      return launch.emitOpError(
          "has no schedule; run msamp-split-phases first");
    if (Operation *taken = symbols.lookup("cpu");
        isa_and_nonnull<OptimizerOp, LayoutOp>(taken)) {
      InFlightDiagnostic diagnostic =
          launch.emitOpError("needs the name @cpu for its native code");
      diagnostic.attachNote(taken->getLoc()) << "which this op has";
      return diagnostic;
    } else if (taken)
      return launch.emitOpError("is a second launch; a plan holds one");
    OpBuilder builder(launch);
    auto module = ModuleOp::create(launch.getLoc(), "cpu");
    symbols.insert(module, std::next(Block::iterator(launch)));
    builder.setInsertionPointToStart(module.getBody());
    emitScalars(builder, optimizer);
    for (auto kernel : launch.getKernels().front().getOps<KernelOp>())
      for (const IsaTraits &isa : kIsas)
        KernelLowering(kernel, optimizer, isa,
                       createKernelFunction(builder, kernel, isa))
            .run();
    return success();
  }

  LLVM::LLVMFuncOp createFunction(OpBuilder &builder, Location loc,
                                  const Twine &name, ArrayRef<Type> arguments,
                                  const IsaTraits &isa) {
    auto type = LLVM::LLVMFunctionType::get(
        LLVM::LLVMVoidType::get(&getContext()), arguments);
    auto function = LLVM::LLVMFuncOp::create(builder, loc, name.str(), type);
    function.setTargetCpu(isa.cpu);
    // There is no libc to call, and AVX-512 is not to be halved.
    auto pair = [&](StringRef key, StringRef value) {
      return builder.getStrArrayAttr({key, value});
    };
    function.setPassthroughAttr(
        builder.getArrayAttr({builder.getStringAttr("nounwind"),
                              builder.getStringAttr("no-builtins"),
                              pair("prefer-vector-width", "512"),
                              pair("min-legal-vector-width", "512")}));
    if (isa.hasF16)
      function->setAttr("msamp.native_f16", builder.getUnitAttr());
    return function;
  }

  LLVM::LLVMFuncOp createKernelFunction(OpBuilder &builder, KernelOp kernel,
                                        const IsaTraits &isa) {
    Type pointer = LLVM::LLVMPointerType::get(&getContext());
    Type i64 = builder.getI64Type();
    return createFunction(builder, kernel.getLoc(),
                          kernel.getSymName() + "_" + isa.suffix,
                          {pointer, pointer, i64, i64, pointer}, isa);
  }

  /// The function of the optimizer's scalars: f64 in, rounded once to f32.
  void emitScalars(OpBuilder &moduleBuilder, OptimizerOp optimizer) {
    Location loc = optimizer.getLoc();
    Type pointer = LLVM::LLVMPointerType::get(&getContext());
    LLVM::LLVMFuncOp function = createFunction(
        moduleBuilder, loc, optimizer.getSymName() + "_scalars",
        {moduleBuilder.getI64Type(), pointer, pointer}, kIsas[0]);
    OpBuilder builder(&getContext());
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    Arith a{builder, loc};
    Block &region = optimizer.getScalars().front();
    Type f64 = builder.getF64Type(), f32 = builder.getF32Type();
    IRMapping mapping;
    mapping.map(region.getArgument(0), entry->getArgument(0));
    for (int32_t index = 0,
                 end = static_cast<int32_t>(optimizer.getHyper().size());
         index < end; ++index)
      mapping.map(region.getArgument(index + 1),
                  a.load(f64, a.address(entry->getArgument(1), f64, index), 8));
    for (Operation &op : region.without_terminator()) {
      if (auto powi = dyn_cast<PowiOp>(op)) {
        mapping.map(powi.getResult(),
                    expandPowi(builder, powi,
                               {mapping.lookup(powi.getBase()),
                                mapping.lookup(powi.getExponent())}));
        continue;
      }
      builder.clone(op, mapping);
    }
    for (auto [index, value] :
         llvm::enumerate(region.getTerminator()->getOperands())) {
      Value rounded =
          arith::TruncFOp::create(builder, loc, f32, mapping.lookup(value));
      a.store(
          rounded,
          a.address(entry->getArgument(2), f32, static_cast<int32_t>(index)),
          4);
    }
    LLVM::ReturnOp::create(builder, loc, ValueRange());
  }
};
} // namespace
