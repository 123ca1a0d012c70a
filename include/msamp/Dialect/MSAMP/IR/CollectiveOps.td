// Process groups, and the collectives of a sharded step.

#ifndef MSAMP_COLLECTIVE_OPS_TD
#define MSAMP_COLLECTIVE_OPS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPTypes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def MSAMP_ProcessGroupOp : MSAMP_Op<"process_group", [Symbol]> {
  let summary = "ranks that work on one model, each with its own gradients";
  let description = [{
    Ranks are numbered from 0. They run the same step plan; what a rank owns follows
    from its number and the layout's sharding.

    `collectives` says where kernels on devices get other ranks' gradients and leave
    new weights: `separate`, in buffers that a communicator fills and empties between
    launches; `fused`, in the other ranks' memory, within one launch; `auto`, the
    default, fused where every rank reaches the memory of all others, which is known
    when they meet. The bits are the same.

    * (C1) there are 1 to 65536 ranks

    ```mlir
    msamp.process_group @dp ranks(4) collectives(fused)
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$ranks,
      OptionalAttr<MSAMP_CollectiveKindAttr>:$collectives);
  let assemblyFormat = [{
    $sym_name `ranks` `(` $ranks `)`
    (`collectives` `(` custom<EnumKeyword>($collectives)^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

class MSAMP_CollectiveOp<string name, Type inputType, Type resultType>
    : MSAMP_Op<name, [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let arguments = (ins inputType:$input, FlatSymbolRefAttr:$group);
  let results = (outs resultType:$result);
  let assemblyFormat =
      "$input `over` $group attr-dict `:` type($input) `->` type($result)";
}

def MSAMP_ReduceScatterOp
    : MSAMP_CollectiveOp<"reduce_scatter", MSAMP_Updatable, MSAMP_Wide> {
  let summary = "mean over ranks of their gradients, where it is updated";
  let description = [{
    Takes every rank's own gradients of whole tensors, as they travel, and gives each
    rank the mean, in f32, of the elements that it updates: of a bundle (role "wire")
    under the layout's sharding, all of them under `none`; of a tensor an equal part
    of its dimension 0, rank after rank.

    The mean of an element: every rank's value is decoded and multiplied by that
    rank's scale_inv; sums of neighbours (0 and 1, 2 and 3, …; a last one without a
    neighbour as it is) are summed again in the same way until one is left; that is
    divided by the number of ranks. Each sum and the quotient are rounded to f32. So
    the bits depend on the number of ranks, and on nothing else.

    * (C1) `group` is defined; of bundles it is that of the layout's sharding
    * (C2) bundles: `input` is "wire", `result` is the layout's "grad"
    * (C3) tensors: shapes are static, dimension 0 of `input` is that of `result`
      times the ranks, the others are equal; `result` is f32

    `msamp-lift-collectives` takes the tensor form to a step of whole tensors.

    ```mlir
    %mean = msamp.reduce_scatter %g over @dp
        : !msamp.bundle<@model, wire> -> !msamp.bundle<@model, grad>
    ```
  }];
}

def MSAMP_AllReduceOp
    : MSAMP_CollectiveOp<"all_reduce",
                         AnyTypeOf<[RankedTensorOf<[F32, F16, BF16]>, MSAMP_Scaled]>,
                         MSAMP_F32Tensor> {
  let summary = "mean over ranks of a tensor's gradients, whole on every rank";
  let description = [{
    The mean that `msamp.reduce_scatter` defines, of all elements on every rank.
    `msamp-lift-collectives` takes it to a step of whole tensors.

    * (C1) `group` is defined
    * (C2) `input` and `result` have one shape

    ```mlir
    %mean = msamp.all_reduce %g over @dp : tensor<8x4xbf16> -> tensor<8x4xf32>
    ```
  }];
  let hasVerifier = 1;
}

def MSAMP_AllGatherOp
    : MSAMP_CollectiveOp<"all_gather", MSAMP_Updatable, MSAMP_Updatable> {
  let summary = "whole tensors on every rank, from what each updated";
  let description = [{
    Payloads travel as they are stored: every rank has the scales already.

    * (C1) `group` is defined; of bundles it is that of the layout's sharding
    * (C2) bundles: `input` and `result` have one type, of a role
    * (C3) tensors: shapes are static, dimension 0 of `result` is that of `input`
      times the ranks, the others are equal, and so are the formats

    ```mlir
    %whole = msamp.all_gather %part over @dp : tensor<2x4xbf16> -> tensor<8x4xbf16>
    ```
  }];
}

#endif // MSAMP_COLLECTIVE_OPS_TD
