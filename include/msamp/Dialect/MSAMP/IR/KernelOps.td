// Level two: launches, their kernels, and the ops of one element.

#ifndef MSAMP_KERNEL_OPS_TD
#define MSAMP_KERNEL_OPS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPTypes.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def MSAMP_LaunchOp : MSAMP_Op<"launch", [Symbol, SymbolTable, NoTerminator,
    IsolatedFromAbove, NoRegionArguments, SingleBlock,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "one launch of a step: all tensors, all phases";
  let description = [{
    Holds the kernels of a step. Every phase runs over all tensors before the next
    begins; between them the non-finite gradients are counted and, if there are
    any, the rest is skipped. `schedule` names the phases:

    * `two_phase`: `reduce` (amaxes, nothing written), then `store`.
    * `one_pass`: `store`, whose scales are known before it. `reduce` runs only for
      tensors whose histories are not full yet.
    * `speculative`: for each tensor `settle`, which finds out whether bounds tell
      all its scales; if they do not, `narrow` or `reduce`; then `store`.

    `inspect` is what is left of `reduce` where only the gradient has to be looked
    at, because its amax is not known.

    Made by `msamp-fuse-step` with unphased kernels; `msamp-split-phases` gives each
    kernel its phase.

    * (C1) holds only kernels
    * (C2) `layout` and `optimizer` are defined
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$layout,
      FlatSymbolRefAttr:$optimizer, OptionalAttr<MSAMP_ScheduleAttr>:$schedule);
  let regions = (region SizedRegion<1>:$kernels);
  let assemblyFormat = [{
    $sym_name `layout` `(` $layout `)` `optimizer` `(` $optimizer `)`
    (`schedule` `(` custom<EnumKeyword>($schedule)^ `)`)?
    attr-dict-with-keyword $kernels
  }];
  let hasVerifier = 1;
}

def MSAMP_KernelOp : MSAMP_Op<"kernel", [Symbol, NoTerminator,
    IsolatedFromAbove, NoRegionArguments, SingleBlock, HasParent<"LaunchOp">]> {
  let summary = "what a launch does to one element of one storage class";
  let description = [{
    The region is executed for every element of every tensor of `storage_class`, but
    that of phase `settle` once for every tensor.
    It has no branches; elements do not see one another except through `reduce`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      FlatSymbolRefAttr:$storage_class, OptionalAttr<MSAMP_PhaseAttr>:$phase);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `class` `(` $storage_class `)`
    (`phase` `(` custom<EnumKeyword>($phase)^ `)`)? attr-dict-with-keyword $body
  }];
}

class MSAMP_KernelElementOp<string mnemonic, list<Trait> traits = []>
    : MSAMP_Op<mnemonic, traits # [ParentOneOf<["KernelOp"]>]>;

def MSAMP_LoadOp : MSAMP_KernelElementOp<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "this element's payload of a role";
  let arguments = (ins StrAttr:$role);
  let results = (outs MSAMP_Payload:$result);
  let assemblyFormat = "$role attr-dict `:` type($result)";
}

def MSAMP_StoreOp : MSAMP_KernelElementOp<"store", [MemoryEffects<[MemWrite]>]> {
  let summary = "replace this element's payload of a role";
  let arguments = (ins MSAMP_Payload:$value, StrAttr:$role);
  let assemblyFormat = "$value `to` $role attr-dict `:` type($value)";
}

def MSAMP_UniformOp : MSAMP_KernelElementOp<"uniform", [Pure]> {
  let summary = "a value that all elements of a tensor share";
  let description = [{
    * `scalar NAME`: a result of the optimizer's `scalars` region, by index
    * `scale_inv ROLE`: the stored scale_inv (for "grad" divided by the loss scale;
      1 for unscaled formats)
    * `old_scale ROLE`: 1 / scale_inv as it was before the step
    * `amax ROLE`: the amax that the reduce phase found
    * `history ROLE`: the largest amax of the role's history, or -1 until it is full
    * `stored_amax ROLE`: the largest magnitude that the role's tensor holds before
      the step; of "grad", if it is scaled, the largest that its scale allows
    * `stored_ratio ROLE`: the largest that the last step's `reduce ... as ratio`
      found for the role, or infinity if the tensor was written since
    * `settled ROLE`: an amax that gives the same scale as the step's, or -1 if it
      was not known before the step
  }];
  let arguments = (ins MSAMP_UniformKindAttr:$kind, StrAttr:$name);
  let results = (outs F32:$result);
  let assemblyFormat =
      "custom<EnumKeyword>($kind) $name attr-dict `:` type($result)";
}

def MSAMP_DecodeOp : MSAMP_Op<"decode", [Pure,
    SameOperandsAndResultShape /*C1*/]> {
  let summary = "exact f32 value of a payload";
  let description = [{
    A NaN becomes a quiet NaN whose other bits are unspecified; encode makes one
    NaN of all. f32 passes unchanged.
    `msamp-expand-casts` turns it into what the target has.

    * (C1) operand and result are scalars, or vectors of one shape
  }];
  let arguments = (ins AnyTypeOf<[MSAMP_Payload,
      VectorOfAnyRankOf<[F8E4M3FN, F8E5M2, F16, BF16, F32]>]>:$input);
  let results = (outs AnyTypeOf<[F32, VectorOfAnyRankOf<[F32]>]>:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def MSAMP_EncodeOp : MSAMP_Op<"encode", [Pure,
    SameOperandsAndResultShape /*C1*/]> {
  let summary = "cast an f32 to a payload, one rounding to nearest even";
  let description = [{
    `saturate` limits to the largest finite value (infinities too); `ieee` gives an
    infinity above it, or a NaN with the sign in E4M3. NaN is stored as 0x7F (FP8),
    0x7FFF (f16, bf16) or 0x7FFFFFFF (f32), without a sign, as PTX does.

    * (C1) operand and result are scalars, or vectors of one shape
  }];
  let arguments = (ins MSAMP_OverflowAttr:$overflow,
      AnyTypeOf<[F32, VectorOfAnyRankOf<[F32]>]>:$input);
  let results = (outs AnyTypeOf<[MSAMP_Payload,
      VectorOfAnyRankOf<[F8E4M3FN, F8E5M2, F16, BF16, F32]>]>:$result);
  let assemblyFormat = [{
    custom<EnumKeyword>($overflow) $input attr-dict `:` type($input) `->`
    type($result)
  }];
  let hasFolder = 1;
}

def MSAMP_CountLossOp : MSAMP_KernelElementOp<"count_loss", [Pure]> {
  let summary = "1 if a cast lost this element, else 0";
  let description = [{
    `payload` is `encode saturate` of `value`. `flushed`: it is zero and `value` is
    not. `saturated`: `value` exceeds the largest finite number, or is NaN. A target
    may look at the payloads of several elements at once and at values only where a
    payload is zero or the largest.

    * (C1) `kind` is one of these two
  }];
  let arguments = (ins MSAMP_ResultKindAttr:$kind, F32:$value,
      MSAMP_Payload:$payload);
  let results = (outs I32:$result);
  let assemblyFormat = [{
    custom<EnumKeyword>($kind) $value `as` $payload attr-dict `:` type($payload)
    `->` type($result)
  }];
  let hasVerifier = 1;
}

def MSAMP_HashOp : MSAMP_KernelElementOp<"hash", [Pure]> {
  let summary = "fingerprint of one element's payloads, keyed by its index";
  let description = [{
    The payloads, in falling order of size (then of operand), are laid end to end
    into 32-bit words, padded with zero words to an even number. With `i` the
    element's index in the whole tensor and `j` the number of a pair of words:

    ```
    result = sum over j of (w[2j] + U) * (w[2j+1] + V)  mod 2^64
    U = low(i) * 0x9E3779B1 + j * 0x85EBCA77            mod 2^32
    V = low(i) * 0xC2B2AE3D + high(i) * 0x27D4EB2F + j * 0x165667B1 + 1
    ```

    A sum of these over elements depends on no order. It finds faults; it is no
    defence against an adversary.
  }];
  let arguments = (ins Variadic<MSAMP_Payload>:$payloads);
  let results = (outs I64:$result);
  let assemblyFormat =
      "$payloads attr-dict `:` type($payloads) `->` type($result)";
}

def MSAMP_ReduceOp : MSAMP_KernelElementOp<"reduce",
    [MemoryEffects<[MemWrite]>, AllTypesMatch<["value", "result"]>]> {
  let summary = "combine a value over elements, whatever their order";
  let description = [{
    `max` is unsigned, `sum` wraps around, so the bits depend on no order. The
    result is known only when all elements of the scope have been seen: ops that
    use it belong to a later phase, and `msamp-split-phases` puts them there. `as`
    names what the value is to the runtime.
  }];
  let arguments = (ins MSAMP_ReduceKindAttr:$kind, AnyTypeOf<[I32, I64]>:$value,
      MSAMP_ReduceScopeAttr:$scope, MSAMP_ResultKindAttr:$meaning,
      OptionalAttr<StrAttr>:$role);
  let results = (outs AnyTypeOf<[I32, I64]>:$result);
  let assemblyFormat = [{
    custom<EnumKeyword>($kind) $value `scope` `(` custom<EnumKeyword>($scope) `)`
    `as` custom<EnumKeyword>($meaning) (`of` $role^)? attr-dict `:` type($value)
  }];
  let extraClassDeclaration = [{
    /// The f32 whose largest magnitude this finds, by its bits without the
    /// sign; null if it finds something else.
    ::mlir::Value getMagnitude();
  }];
}

def MSAMP_SettleOp : MSAMP_KernelElementOp<"settle",
    [MemoryEffects<[MemWrite]>]> {
  let summary = "take a scale from bounds on the amax, if they agree";
  let description = [{
    The amax that the scale of `role` comes from lies in [`low`, `high`]. If
    `compute_scale` gives one scale for both, that is the scale, whatever the values
    are, and `uniform settled` is `high`. Else the tensor needs phase `otherwise`.
    Ends that are not finite settle nothing.

    * (C1) inside a kernel of phase `settle`
    * (C2) `otherwise` is `narrow` or `reduce`

    ```mlir
    msamp.settle %low, %high of "second_moment" for f16 otherwise reduce
    ```
  }];
  let arguments = (ins F32:$low, F32:$high, StrAttr:$role, TypeAttr:$payload,
      MSAMP_PhaseAttr:$otherwise);
  let assemblyFormat = [{
    $low `,` $high `of` $role `for` $payload `otherwise`
    custom<EnumKeyword>($otherwise) attr-dict
  }];
  let hasVerifier = 1;
}

#endif // MSAMP_KERNEL_OPS_TD
