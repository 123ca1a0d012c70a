// What the lowerings of kernels share: one storage class's elements, emitted
// for a vector or for one element out of the same region, so that the two have
// the same bits by construction. Where operands lie, how uniforms arrive and
// where results go is the target's business.

#ifndef MSAMP_LIB_CONVERSION_KERNELCOMMON_KERNELEMITTER_H
#define MSAMP_LIB_CONVERSION_KERNELCOMMON_KERNELEMITTER_H

#include "KernelCommon/Screen.h"
#include "msamp/Dialect/MSAMP/IR/MSAMP.h"
#include "msamp_rt/plan_format.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/APFloat.h"

namespace mlir::msamp {

/// Scalar arithmetic with short names.
struct ScalarBuilder {
  OpBuilder &builder;
  Location loc;

  Value i32(uint32_t value);
  Value i64(int64_t value);
  template <typename Op> Value binary(Value left, Value right) {
    return Op::create(builder, loc, left, right);
  }
  Value compare(arith::CmpIPredicate predicate, Value left, Value right);
  Value select(Value condition, Value whenTrue, Value whenFalse);
  Value bitcast(Type type, Value value);
  Value splat(int64_t lanes, Value value);
  /// Address of element `index` of `type` after `base`.
  Value address(Value base, Type type, Value index);
  Value address(Value base, Type type, int32_t index);
  Value load(Type type, Value address, unsigned alignment);
  void store(Value value, Value address, unsigned alignment);
};

/// `element`, or a vector of `lanes` of it.
Type withLanes(Type element, int64_t lanes);

/// The integer type of a payload's code; f32 for f32.
Type asInteger(Type payload);

/// The bits as an f32 of a number of a narrower format.
uint32_t toSingleBits(llvm::APFloat value);

/// compute_scale on f32, by the exponents; see ComputeScaleOp::computeBits.
Value expandComputeScale(OpBuilder &builder, Location loc, Value amax,
                         Value oldScale, Type payload);

/// What a target can do with vectors of elements.
struct KernelTraits {
  /// Whether it has an exact f32 fma.
  bool hasFma;
  /// Whether it computes on vectors as such. If so, accumulators are vectors
  /// too; if not, each vector is reduced to one value at once, and vectors are
  /// computed in groups of a few lanes, which keeps few values alive.
  bool hasVectors;
  /// The alignment that vector accesses may count on, up to the vector's own
  /// size; 0: an element's.
  unsigned alignment;
  /// Adds an i32 to the count of a reduction. Where there is one, counts of
  /// losses, which hardly ever change, are not among the sums.
  std::function<void(ReduceOp reduce, Value lost)> addCount;
  /// The target's own form of an op on these operands, or null.
  std::function<Value(Operation *op, ValueRange operands)> expand;
  /// About 1 / sqrt of f32 values, as Screen asks.
  std::function<Value(Value)> approximateRoot;
  /// Stores a value elsewhere, too, if anything is to be.
  std::function<void(StoreOp store, Value value, Value address,
                     unsigned alignment)>
      alsoStore;
  /// Bytes of two i32, chosen by the nibbles of a selector (0 to 3 of the
  /// first, 4 to 7 of the second), if the target has that in one instruction.
  std::function<Value(Value first, Value second, uint32_t selector)> permute;
};

class KernelEmitter {
public:
  KernelEmitter(OpBuilder &builder, KernelOp kernel, OptimizerOp optimizer,
                KernelTraits traits);

  /// Emits what is the same for all elements, with `load` for the uniforms.
  void emitUniforms(llvm::function_ref<Value(UniformOp)> load);

  /// Uniforms as operands of vectors of `lanes`: to be emitted before a loop.
  IRMapping splatUniforms(int64_t lanes);

  /// Zeros for the reductions over elements. Where vectors are reduced at once,
  /// a maximum of magnitudes is kept as an f32.
  SmallVector<Value> zeroSums(int64_t lanes);

  /// Where elements of a role lie, whose payload is of the given integer type
  /// (f32 for f32).
  using Address = llvm::function_ref<Value(StringRef role, Type integer)>;

  /// Gives `count` lanes of a role's integers from lane `offset` on.
  using Load =
      llvm::function_ref<Value(LoadOp load, int64_t offset, int64_t count)>;

  /// Emits the element ops for `lanes` elements. `address` is where stores go;
  /// `index` is the first element's index in its tensor. Returns what becomes
  /// of `sums`.
  SmallVector<Value> emitElements(const IRMapping &mapping, Load load,
                                  Address address, Value index, int64_t lanes,
                                  ValueRange sums);

  /// A load of `lanes` elements at `address`, which an element's size aligns.
  Value emitLoad(LoadOp load, Value address, int64_t lanes);

  /// Roles that the kernel loads or stores.
  ArrayRef<StringRef> getRoles() const { return roles; }
  /// Reductions over elements, in the order of their sums.
  MutableArrayRef<ReduceOp> getReduces() { return varyingReduces; }
  /// Counts of losses, if the target keeps them apart.
  MutableArrayRef<ReduceOp> getCounts() { return countReduces; }
  /// Maxima of uniform values.
  ArrayRef<ReduceOp> getUniformReduces() const { return uniformReduces; }
  /// Maxima of what values become in storage: storing is monotone, so each is
  /// what the maximum of another reduction becomes.
  MutableArrayRef<ReduceOp> getDerivedReduces() { return derivedReduces; }
  /// Emits a derived maximum, as bits, from the `sums` over all elements.
  Value emitDerived(ReduceOp reduce, ValueRange sums);
  Value getUniform(Value value) const { return uniforms.lookup(value); }

  size_t getRoleIndex(StringRef role) const { return roleIndex.lookup(role); }
  /// Places among the uniforms and results of plan_format.h.
  size_t getUniformIndex(UniformOp op) const;
  size_t getUniformIndex(StringRef role, ::msamp::plan::RoleUniform kind) const;
  size_t getResultIndex(ReduceOp op) const;

private:
  void emitPure(Operation *op, IRMapping &mapping, int64_t lanes);
  Value emitCount(CountLossOp count, Value value, int64_t lanes);
  void emitGuardedCounts(IRMapping &mapping, ValueRange sums, int64_t lanes);
  Value findSaturation(CountLossOp count, ValueRange sums);
  bool isCountApart(ReduceOp reduce) const;
  ReduceOp findSource(ReduceOp reduce);
  Value reduceLanes(ReduceOp reduce, Value sum, IRMapping &mapping,
                    int64_t lanes);
  Value reduceScreened(const Screen &screen, Value sum, IRMapping &mapping,
                       int64_t lanes);
  void findScreens();
  const Screen *findScreen(ReduceOp reduce, int64_t lanes) const;
  bool isScreened(Operation *op, int64_t lanes) const;
  SmallVector<Value> packWords(HashOp hash, IRMapping &mapping, int64_t lanes);
  SmallVector<Value> permuteWords(ArrayRef<Value> payloads, IRMapping &mapping,
                                  int64_t lanes);
  Value emitHash(HashOp hash, IRMapping &mapping, Value index,
                 int64_t laneOffset, int64_t lanes);
  int64_t getGroup(int64_t lanes) const;
  unsigned getAlignment(Type payload, int64_t lanes) const;
  Value multiplyWide(Value left, Value right, int64_t lanes);

  OpBuilder &builder;
  Location loc;
  KernelOp kernel;
  KernelTraits traits;
  size_t numScalars;
  llvm::StringMap<size_t> roleIndex;
  SmallVector<StringRef> roles;
  SmallVector<Operation *> varyingOps;
  SmallVector<ReduceOp> varyingReduces, uniformReduces, countReduces,
      derivedReduces;
  SmallVector<Screen> screens;
  /// Scalar values of everything that is uniform.
  IRMapping uniforms;
};

} // namespace mlir::msamp

#endif // MSAMP_LIB_CONVERSION_KERNELCOMMON_KERNELEMITTER_H
