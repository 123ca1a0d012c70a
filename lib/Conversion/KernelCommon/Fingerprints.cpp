// KernelEmitter: msamp.hash of elements.

#include "KernelCommon/KernelEmitter.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::msamp;
namespace plan = ::msamp::plan;

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
