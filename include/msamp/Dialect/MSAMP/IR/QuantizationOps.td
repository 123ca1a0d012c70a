// Quantize, dequantize and what scales need.

#ifndef MSAMP_QUANTIZATION_OPS_TD
#define MSAMP_QUANTIZATION_OPS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPTypes.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def MSAMP_QuantizeOp : MSAMP_Op<"quantize", [Pure]> {
  let summary = "multiply by a scale and cast to the storage format";
  let description = [{
    Computes `payload = cast(input * scale)`, rounding to nearest even once, and
    keeps `scale_inv = 1 / scale` beside it. Formats without a scale ignore
    `scale`. `overflow` rules magnitudes above the largest finite value of a scaled
    format: `saturate` limits them to it (infinities too), `ieee` makes infinities
    (E4M3: NaN). NaN is stored as NaN.

    * (C1) tensors: `input` and `result` have one shape
    * (C2) bundles: `input` is wide, `scale` is scalar, `result` is a role, all
      over one layout
    * (C3) either all of `input`, `scale` and `result` are bundles or none is
    * (C4) bundles: `overflow` is `saturate`; a class's unscaled formats follow IEEE

    `msamp-fuse-step` takes the bundle form into a launch.

    ```mlir
    %q = msamp.quantize saturate %x, %s : tensor<4xf32>, tensor<f32>
        -> !msamp.scaled<4, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
    ```
  }];
  let arguments = (ins MSAMP_OverflowAttr:$overflow, MSAMP_Wide:$input,
      MSAMP_PerTensor:$scale);
  let results = (outs MSAMP_Stored:$result);
  let assemblyFormat = [{
    custom<EnumKeyword>($overflow) $input `,` $scale attr-dict `:` type($input) `,` type($scale)
    `->` type($result)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MSAMP_DequantizeOp : MSAMP_Op<"dequantize", [Pure]> {
  let summary = "decode a stored value to f32 and multiply by its scale_inv";
  let description = [{
    Computes `result = decode(payload) * scale_inv`. Decoding is exact; the product
    is rounded once (exact too while the result is a normal f32, for scales are
    powers of two).

    * (C1) tensors: `input` and `result` have one shape
    * (C2) bundles: `input` is a role, `result` is wide, both over one layout

    ```mlir
    %x = msamp.dequantize %m
        : !msamp.bundle<@model, first_moment> -> !msamp.bundle<@model, wide>
    ```
  }];
  let arguments = (ins MSAMP_Stored:$input);
  let results = (outs MSAMP_Wide:$result);
  let assemblyFormat =
      "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def MSAMP_AmaxOp : MSAMP_Op<"amax", [Pure]> {
  let summary = "largest magnitude of each tensor";
  let description = [{
    `result = max |input[i]|`, an integer maximum over the bits with the sign
    cleared: independent of order, and a NaN anywhere gives a NaN. An empty tensor
    has amax 0.

    * (C1) tensors: `result` is a rank-0 f32 tensor
    * (C2) bundles: `input` is wide, `result` is scalar, both over one layout
  }];
  let arguments = (ins MSAMP_Wide:$input);
  let results = (outs MSAMP_PerTensor:$result);
  let assemblyFormat =
      "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def MSAMP_ComputeScaleOp : MSAMP_Op<"compute_scale", [Pure]> {
  let summary = "largest power of two that keeps an amax in range";
  let description = [{
    `result = 2^e` with `e = clamp(floor(log2(max_finite / amax)), -126, 126)`,
    found exactly from the bits of `amax`. If `amax` is zero, infinite or NaN the
    result is the old scale. After MS-AMP's scale formula, without its failures at
    infinite and tiny amax.

    For f32 values and rank-0 tensors `previous` is the old scale, and the format is
    `payload`. For bundles `previous` is the bundle of the role about to be
    replaced: it gives each tensor's format, its old scale and, under delayed
    scaling, the history that stands in for `amax`; formats without a scale give 1.

    * (C1) `amax`, `previous` and `result` are f32, or rank-0 f32 tensors, or
      bundles over one layout of which `amax` and `result` are scalar and
      `previous` is a role
    * (C2) `payload` is given except for bundles, and is a format with a range
      worth scaling to: FP8 or f16

    ```mlir
    %s = msamp.compute_scale %amax, %old for f8E4M3FN : f32, f32 -> f32
    ```
  }];
  let arguments = (ins AnyTypeOf<[F32, MSAMP_PerTensor]>:$amax,
      AnyTypeOf<[F32, MSAMP_PerTensor]>:$previous,
      OptionalAttr<TypeAttr>:$payload);
  let results = (outs AnyTypeOf<[F32, MSAMP_PerTensor]>:$result);
  let assemblyFormat = [{
    $amax `,` $previous (`for` $payload^)? attr-dict `:` type($amax) `,`
    type($previous) `->` type($result)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// The scale for `amax`, both as f32 bits, in the format `payload`.
    static uint32_t computeBits(uint32_t amax, uint32_t oldScale, Type payload);
  }];
}

def MSAMP_UpdateAmaxHistoryOp : MSAMP_Op<"update_amax_history", [Pure,
    AllTypesMatch<["history", "result"]> /*C1*/]> {
  let summary = "push an amax into the history of a delayed scale";
  let description = [{
    `result[0] = amax`, `result[k] = history[k - 1]`; the oldest entry falls out.
    Entries not seen yet are -1. An infinite or NaN amax empties the history, so
    that scaling is current again until it has filled (as MS-AMP restarts its
    counter).

    * (C1) `history` and `result` have one type, of at least one entry
  }];
  let arguments = (ins 1DTensorOf<[F32]>:$history, MSAMP_F32Scalar:$amax);
  let results = (outs 1DTensorOf<[F32]>:$result);
  let assemblyFormat =
      "$history `,` $amax attr-dict `:` type($history) `,` type($amax)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif // MSAMP_QUANTIZATION_OPS_TD
