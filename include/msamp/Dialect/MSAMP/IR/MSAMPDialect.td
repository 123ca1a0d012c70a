// The dialect, and nothing else; types, attributes and ops have files of their
// own. The generated documentation takes its introduction from here.

#ifndef MSAMP_DIALECT_TD
#define MSAMP_DIALECT_TD

include "mlir/IR/OpBase.td"

def MSAMP_Dialect : Dialect {
  let name = "msamp";
  let cppNamespace = "::mlir::msamp";
  let summary = "FP8 optimizer steps: formats, scales, wrapped updates";
  let description = [{
    The dialect tells one optimizer step at two levels.

    *What* is computed: an `optimizer` is plain scalar maths that knows nothing of
    FP8; a `layout` lists a model's tensors and how each class of them is stored;
    a `wrapped_update` applies the one to the other. `dequantize`, `amax`,
    `compute_scale`, `update_amax_history` and `quantize` say what the wrapping
    means. Values are tensors, scaled tensors (`!msamp.scaled`) or bundles
    (`!msamp.bundle`): all tensors of a layout in one role as one value, so that
    the graph of a model with 300 tensors is a dozen ops.

    *How* it is computed: a `launch` holds one `kernel` for each storage class and
    phase. A kernel's region works on one element: `load`, `decode`, arithmetic,
    `reduce`, `encode`, `store`, with per-tensor values from `uniform`.

    Numerics are part of every op's definition; see docs/Numerics.md.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    void registerAttributes();
    void registerTypes();
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"
  ];
}

class MSAMP_Op<string mnemonic, list<Trait> traits = []>
    : Op<MSAMP_Dialect, mnemonic, traits>;

#endif // MSAMP_DIALECT_TD
