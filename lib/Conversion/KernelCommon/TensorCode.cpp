// See TensorCode.h.

#include "KernelCommon/TensorCode.h"

#include "KernelCommon/KernelEmitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

/// powi as the loop that defines it.
static Value expandPowi(OpBuilder &builder, PowiOp op, ValueRange operands) {
  Location loc = op.getLoc();
  ScalarBuilder a{builder, loc};
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
        ScalarBuilder n{nested, loc};
        scf::ConditionOp::create(
            nested, loc,
            n.compare(arith::CmpIPredicate::ne, values[2], n.i64(0)), values);
      },
      [&](OpBuilder &nested, Location, ValueRange values) {
        ScalarBuilder n{nested, loc};
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

void mlir::msamp::emitScalars(LLVM::LLVMFuncOp function,
                              OptimizerOp optimizer) {
  OpBuilder builder(function.getContext());
  Location loc = optimizer.getLoc();
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  ScalarBuilder a{builder, loc};
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
    a.store(rounded,
            a.address(entry->getArgument(2), f32, static_cast<int32_t>(index)),
            4);
  }
  LLVM::ReturnOp::create(builder, loc, ValueRange());
}

void mlir::msamp::emitSettle(LLVM::LLVMFuncOp function, KernelOp kernel,
                             OptimizerOp optimizer) {
  OpBuilder builder(function.getContext());
  Location loc = kernel.getLoc();
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  ScalarBuilder a{builder, loc};
  Type f32 = builder.getF32Type();
  auto uniform = [&](size_t index) {
    return a.address(entry->getArgument(0), f32, static_cast<int32_t>(index));
  };
  KernelEmitter emitter(builder, kernel, optimizer,
                        {/*hasFma=*/false, /*hasVectors=*/false,
                         /*alignment=*/0, /*addCount=*/nullptr,
                         /*expand=*/nullptr, /*approximateRoot=*/nullptr,
                         /*alsoStore=*/nullptr, /*permute=*/nullptr});
  emitter.emitUniforms([&](UniformOp op) {
    return a.load(f32, uniform(emitter.getUniformIndex(op)), 4);
  });
  auto constant = [&](float value) -> Value {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getF32FloatAttr(value));
  };
  auto compare = [&](arith::CmpFPredicate predicate, Value left, Value right) {
    return arith::CmpFOp::create(builder, loc, predicate, left, right)
        .getResult();
  };
  Value zero = constant(0.0f);
  Value largest = constant(std::numeric_limits<float>::max());
  Value isNarrow =
      arith::ConstantOp::create(builder, loc, builder.getBoolAttr(false));
  Value isReduce = isNarrow;
  for (auto settle : kernel.getBody().front().getOps<SettleOp>()) {
    Value low = emitter.getUniform(settle.getLow());
    Value high = emitter.getUniform(settle.getHigh());
    auto scaleOf = [&](Value amax) {
      return expandComputeScale(builder, loc, amax, zero, settle.getPayload());
    };
    // Scales fall as amaxes grow, so both ends speak for all between.
    Value isSettled = a.binary<arith::AndIOp>(
        compare(arith::CmpFPredicate::OEQ, scaleOf(low), scaleOf(high)),
        a.binary<arith::AndIOp>(
            compare(arith::CmpFPredicate::OLE, low, high),
            compare(arith::CmpFPredicate::OLE, high, largest)));
    a.store(a.select(isSettled, high, constant(-1.0f)),
            uniform(emitter.getUniformIndex(settle.getRole(),
                                            plan::RoleUniform::Settled)),
            4);
    Value &isNeeded =
        settle.getOtherwise() == Phase::Narrow ? isNarrow : isReduce;
    Value isOpen = a.binary<arith::XOrIOp>(
        isSettled,
        arith::ConstantOp::create(builder, loc, builder.getBoolAttr(true)));
    isNeeded = a.binary<arith::OrIOp>(isNeeded, isOpen);
  }
  auto phase = [&](plan::Phase phase) {
    return a.i32(static_cast<uint32_t>(phase));
  };
  Value needed = a.select(isReduce, phase(plan::Phase::Reduce),
                          a.select(isNarrow, phase(plan::Phase::Narrow),
                                   phase(plan::Phase::Scalars)));
  LLVM::ReturnOp::create(builder, loc, needed);
}
