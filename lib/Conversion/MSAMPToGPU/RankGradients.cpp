// See RankGradients.h.

#include "MSAMPToGPU/RankGradients.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::msamp;

/// Ranks of which all is kept in registers.
static constexpr uint32_t kMostInRegisters = 4;

void RankGradients::emitTables(Value step, Value tensor, bool readsGradients) {
  first = device.call(builder, loc, "msamp_first", device.i64, {step, tensor});
  parts =
      device.call(builder, loc, isStore ? "msamp_store_parts" : "msamp_parts",
                  device.pointer, {step, tensor});
  copies =
      device.call(builder, loc, "msamp_copies", device.pointer, {step, tensor});
  partScales = device.call(builder, loc, "msamp_part_scales", device.pointer,
                           {step, tensor});
  numPeers = device.call(builder, loc, "msamp_num_peers", device.i32, {step});
  peers = device.call(builder, loc, "msamp_peers", device.pointer, {step});
  if (!readsGradients || wire.numRanks > kMostInRegisters)
    return;
  for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
    ofRanks.push_back(loadOfRank(rank));
}

RankGradients::OfRank RankGradients::loadOfRank(uint32_t rank) {
  auto global = LLVM::LLVMPointerType::get(device.context, 1);
  auto place = static_cast<int32_t>(rank);
  auto loadAddress = [&](Value table) {
    return a.load(device.i64, a.address(table, device.i64, place), 8);
  };
  auto toPointer = [&](Value address) -> Value {
    return LLVM::IntToPtrOp::create(builder, loc, global, address);
  };
  OfRank result;
  Value part = loadAddress(parts);
  result.part = toPointer(part);
  if (!isStore) {
    Value copy = loadAddress(copies);
    result.copy = toPointer(copy);
    result.isCopied = a.compare(arith::CmpIPredicate::ne, copy, part);
  }
  Type f32 = builder.getF32Type();
  result.scaleInv = a.load(f32, a.address(partScales, f32, place), 4);
  return result;
}

void RankGradients::copyParts(
    int64_t lanes, Value index,
    llvm::function_ref<Value(uint32_t, int64_t)> staged) {
  Type integer = asInteger(wire.payload);
  unsigned size = wire.payload.getIntOrFloatBitWidth() / 8;
  int64_t piece = std::min<int64_t>(lanes, 16 / size);
  auto alignment = static_cast<unsigned>(piece * size);
  for (uint32_t rank = 0; !isStore && rank < wire.numRanks; ++rank) {
    OfRank own = getOfRank(rank);
    scf::IfOp::create(
        builder, loc, own.isCopied, [&](OpBuilder &nested, Location) {
          within(builder, nested, [&] {
            Value target = a.address(own.copy, integer, index);
            for (int64_t offset = 0; offset < lanes; offset += piece) {
              Value value = a.load(withLanes(integer, piece),
                                   staged(rank, offset * size), alignment);
              a.store(value,
                      a.address(target, integer, static_cast<int32_t>(offset)),
                      alignment);
            }
            scf::YieldOp::create(builder, loc);
          });
        });
  }
}

/// A rank's gradient from its payload's integers.
Value RankGradients::emitPart(Value integers, Value scaleInv, int64_t count) {
  Value payload = wire.payload.isF32()
                      ? integers
                      : a.bitcast(withLanes(wire.payload, count), integers);
  Type wide = withLanes(builder.getF32Type(), count);
  Value value = wire.payload.isF32()
                    ? payload
                    : DecodeOp::create(builder, loc, wide, payload).getResult();
  return a.binary<arith::MulFOp>(value, count == 1 ? scaleInv
                                                   : a.splat(count, scaleInv));
}

/// The mean or sum from the sum.
Value RankGradients::finish(Value sum, int64_t count) {
  if (wire.isSum)
    return sum;
  Value ranks = arith::ConstantOp::create(
      builder, loc, builder.getF32FloatAttr(static_cast<float>(wire.numRanks)));
  return a.binary<arith::DivFOp>(sum,
                                 count == 1 ? ranks : a.splat(count, ranks));
}

Value RankGradients::emitReduced(int64_t count,
                                 llvm::function_ref<Value(uint32_t)> load) {
  SmallVector<Value> sums;
  for (uint32_t rank = 0; rank < wire.numRanks; ++rank)
    sums.push_back(emitPart(load(rank), getOfRank(rank).scaleInv, count));
  for (size_t stride = 1; stride < sums.size(); stride *= 2)
    for (size_t rank = 0; rank + stride < sums.size(); rank += 2 * stride)
      sums[rank] = a.binary<arith::AddFOp>(sums[rank], sums[rank + stride]);
  return finish(sums.front(), count);
}

Value RankGradients::emitReducedByLoop(Value index, int64_t count) {
  return finish(
      emitSum(llvm::Log2_32_Ceil(wire.numRanks), a.i32(0), index, count),
      count);
}

/// The sum of the 2^level ranks from `rank` on, as far as there are any.
Value RankGradients::emitSum(unsigned level, Value rank, Value index,
                             int64_t count) {
  if (level == 0) {
    Value part = a.load(device.i64, a.address(parts, device.i64, rank), 8);
    Value scaleInv =
        a.load(builder.getF32Type(),
               a.address(partScales, builder.getF32Type(), rank), 4);
    Type integer = asInteger(wire.payload);
    auto global = LLVM::LLVMPointerType::get(device.context, 1);
    Value base = LLVM::IntToPtrOp::create(builder, loc, global, part);
    unsigned alignment = wire.payload.getIntOrFloatBitWidth() / 8;
    Value integers = a.load(withLanes(integer, count),
                            a.address(base, integer, index), alignment);
    if (!isStore)
      copyPart(part, rank, index, integers, alignment);
    return emitPart(integers, scaleInv, count);
  }
  Value end = a.binary<arith::MinUIOp>(
      a.binary<arith::AddIOp>(rank, a.i32(1u << level)), a.i32(wire.numRanks));
  Value zero = arith::ConstantOp::create(
      builder, loc,
      builder.getZeroAttr(withLanes(builder.getF32Type(), count)));
  auto loop = scf::ForOp::create(
      builder, loc, rank, end, a.i32(1u << (level - 1)), zero,
      [&](OpBuilder &nested, Location, Value half, ValueRange sums) {
        within(builder, nested, [&] {
          Value sum = emitSum(level - 1, half, index, count);
          Value isFirst = a.compare(arith::CmpIPredicate::eq, half, rank);
          scf::YieldOp::create(
              builder, loc,
              a.select(isFirst, sum,
                       a.binary<arith::AddFOp>(sums.front(), sum)));
        });
      });
  return loop.getResult(0);
}

/// The same as copyParts of what a loop has loaded.
void RankGradients::copyPart(Value part, Value rank, Value index,
                             Value integers, unsigned alignment) {
  Value copy = a.load(device.i64, a.address(copies, device.i64, rank), 8);
  scf::IfOp::create(
      builder, loc, a.compare(arith::CmpIPredicate::ne, copy, part),
      [&](OpBuilder &nested, Location) {
        within(builder, nested, [&] {
          auto global = LLVM::LLVMPointerType::get(device.context, 1);
          Value target =
              a.address(LLVM::IntToPtrOp::create(builder, loc, global, copy),
                        asInteger(wire.payload), index);
          a.store(integers, target, alignment);
          scf::YieldOp::create(builder, loc);
        });
      });
}

void RankGradients::storeToPeers(Value value, Value address,
                                 unsigned alignment) {
  scf::ForOp::create(
      builder, loc, a.i32(0), numPeers, a.i32(1), ValueRange(),
      [&](OpBuilder &nested, Location, Value peer, ValueRange) {
        within(builder, nested, [&] {
          Value distance =
              a.load(device.i64, a.address(peers, device.i64, peer), 8);
          a.store(value, a.address(address, builder.getI8Type(), distance),
                  alignment);
          scf::YieldOp::create(builder, loc);
        });
      });
}
