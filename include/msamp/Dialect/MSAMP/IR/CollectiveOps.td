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

/// A collective that reduces, by the mean unless it says otherwise.
class MSAMP_ReducingOp<string name, Type inputType, Type resultType>
    : MSAMP_CollectiveOp<name, inputType, resultType> {
  let arguments = (ins inputType:$input, FlatSymbolRefAttr:$group,
      MSAMP_DefaultRankReductionAttr:$reduction);
  let assemblyFormat = [{
    $input `over` $group (`by` custom<EnumKeyword>($reduction)^)? attr-dict `:`
    type($input) `->` type($result)
  }];
}

def MSAMP_ReduceScatterOp
    : MSAMP_ReducingOp<"reduce_scatter", MSAMP_Updatable, MSAMP_Wide> {
  let summary = "mean or sum over ranks of their gradients, where it is updated";
  let description = [{
    Takes every rank's own gradients of whole tensors, as they travel, and gives each
    rank the mean, in f32, of the elements that it updates: of a bundle (role "wire")
    under the layout's sharding, all of them under `none`; of a tensor an equal part
    of its dimension 0, rank after rank. `by sum` gives the sum instead.

    The mean of an element: every rank's value is decoded and multiplied by that
    rank's scale_inv; sums of neighbours (0 and 1, 2 and 3, …; a last one without a
    neighbour as it is) are summed again in the same way until one is left, which is
    the sum; the mean is that divided by the number of ranks. Each sum and the
    quotient are rounded to f32. So the bits depend on the number of ranks, and on
    nothing else.

    * (C1) `group` is defined; of bundles it is that of the layout's sharding, and so
      is the reduction
    * (C2) bundles: `input` is "wire", `result` is the layout's "grad"
    * (C3) tensors: shapes are static, dimension 0 of `input` is that of `result`
      times the ranks, the others are equal; `result` is f32
    * (C4) the reduction is not `max`

    `msamp-lift-collectives` takes the tensor form to a step of whole tensors.

    ```mlir
    %mean = msamp.reduce_scatter %g over @dp
        : !msamp.bundle<@model, wire> -> !msamp.bundle<@model, grad>
    ```
  }];
  let hasVerifier = 1;
}

def MSAMP_AllReduceOp
    : MSAMP_ReducingOp<"all_reduce", MSAMP_Updatable, MSAMP_Wide> {
  let summary = "mean, sum or maximum over ranks, whole on every rank";
  let description = [{
    Of a tensor, the mean or sum that `msamp.reduce_scatter` defines, of all elements
    on every rank. `msamp-lift-collectives` takes it to a step of whole tensors.

    `by max` is of amaxes: ranks that update parts of a tensor choose one scale for
    all of it. The maximum is of bits, as that of `msamp.amax`. Of a bundle it is one
    exchange for all tensors.

    * (C1) `group` is defined; of bundles it is that of the layout's sharding
    * (C2) mean and sum: tensors of one shape
    * (C3) maximum: one type, a scalar bundle or an f32 tensor of rank 0

    ```mlir
    %mean = msamp.all_reduce %g over @dp : tensor<8x4xbf16> -> tensor<8x4xf32>
    %amax = msamp.all_reduce %own over @dp by max
        : !msamp.bundle<@model, scalar> -> !msamp.bundle<@model, scalar>
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

def MSAMP_BarrierOp : MSAMP_Op<"barrier",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "wait until all ranks have come here";
  let description = [{
    No rank goes on before all have come. Ranks of a step meet where gradients are
    reduced and where weights are gathered, so a barrier before the first or after
    the second asks for nothing more, and `msamp-fuse-step` drops it there; elsewhere
    in a step it is refused.

    * (C1) `group` is defined

    ```mlir
    msamp.barrier over @dp
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$group);
  let assemblyFormat = "`over` $group attr-dict";
}

#endif // MSAMP_COLLECTIVE_OPS_TD
