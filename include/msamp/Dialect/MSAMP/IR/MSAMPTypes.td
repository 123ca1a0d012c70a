// Scaled tensors and bundles.

#ifndef MSAMP_TYPES_TD
#define MSAMP_TYPES_TD

include "msamp/Dialect/MSAMP/IR/MSAMPAttrs.td"

class MSAMP_Type<string name, string typeMnemonic>
    : TypeDef<MSAMP_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def MSAMP_ScaledType : MSAMP_Type<"Scaled", "scaled"> {
  let summary = "tensor of a narrow payload together with its scale_inv";
  let description = [{
    One value carries the payload and `scale_inv`; element `i` means
    `decode(payload[i]) * scale_inv`.

    * (C1) `storage` is scaled
    * (C2) every dimension is static and not negative

    ```mlir
    !msamp.scaled<768x768, #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape,
      "::mlir::msamp::StorageAttr":$storage);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def MSAMP_BundleType : MSAMP_Type<"Bundle", "bundle"> {
  let summary = "all tensors of a layout in one role, as one value";
  let description = [{
    `content` is a role of the layout ("weight", "master_weight", "grad" or a
    state's name), whose tensors are stored in the format of their class; or
    `wide`: every tensor as exact f32 elements; or `scalar`: one f32 a tensor, such
    as an amax or a scale.

    ```mlir
    !msamp.bundle<@model, first_moment>
    !msamp.bundle<@model, wide>
    ```
  }];
  let parameters = (ins "FlatSymbolRefAttr":$layout, "StringAttr":$content);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral wideContent = "wide";
    static constexpr llvm::StringLiteral scalarContent = "scalar";
    /// The bundle of f32 elements over `layout`.
    static BundleType getWide(FlatSymbolRefAttr layout);
    /// The bundle of one f32 a tensor over `layout`.
    static BundleType getScalar(FlatSymbolRefAttr layout);
    bool isWide() const { return getContent().getValue() == wideContent; }
    bool isScalar() const { return getContent().getValue() == scalarContent; }
  }];
}

// Operand kinds shared by the op files.
def MSAMP_F32Tensor : RankedTensorOf<[F32]>;
def MSAMP_F32Scalar : 0DTensorOf<[F32]>;
def MSAMP_Bundle : DialectType<MSAMP_Dialect,
    CPred<"::llvm::isa<::mlir::msamp::BundleType>($_self)">, "bundle">;
def MSAMP_Scaled : DialectType<MSAMP_Dialect,
    CPred<"::llvm::isa<::mlir::msamp::ScaledType>($_self)">, "scaled tensor">;
/// f32 values to read or to quantize, and their stored form.
def MSAMP_Wide : AnyTypeOf<[MSAMP_F32Tensor, MSAMP_Bundle]>;
def MSAMP_PerTensor : AnyTypeOf<[MSAMP_F32Scalar, MSAMP_Bundle]>;
def MSAMP_Stored : AnyTypeOf<[MSAMP_Scaled, MSAMP_Bundle]>;
def MSAMP_Updatable
    : AnyTypeOf<[RankedTensorOf<[F32, F16, BF16]>, MSAMP_Scaled, MSAMP_Bundle]>;

// Formats that decode and encode know.
def MSAMP_Payload : AnyTypeOf<[F8E4M3FN, F8E5M2, F16, BF16, F32]>;

#endif // MSAMP_TYPES_TD
