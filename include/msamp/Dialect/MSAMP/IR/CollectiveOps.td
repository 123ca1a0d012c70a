// Process groups, and the collectives of a sharded step.

#ifndef MSAMP_COLLECTIVE_OPS_TD
#define MSAMP_COLLECTIVE_OPS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPTypes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
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

    * (C1) there is at least one rank

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

def MSAMP_ReduceScatterOp : MSAMP_Op<"reduce_scatter", [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<InferTypeOpInterface, ["inferReturnTypes"]>]> {
  let summary = "mean over ranks of their gradients, where it is updated";
  let description = [{
    Takes every rank's own gradients of whole tensors, as they travel (role "wire"),
    and gives each rank the mean, in f32, of the elements that it updates under the
    layout's sharding: all of them under `none`.

    The mean of an element: every rank's value is decoded and multiplied by that
    rank's scale_inv; sums of neighbours (0 and 1, 2 and 3, …; a last one without a
    neighbour as it is) are summed again in the same way until one is left; that is
    divided by the number of ranks. Each sum and the quotient are rounded to f32. So
    the bits depend on the number of ranks, and on nothing else.

    * (C1) `group` is that of the layout's sharding
    * (C2) `input` is a bundle of "wire"; the result is the layout's "grad"
  }];
  let arguments = (ins MSAMP_Bundle:$input, FlatSymbolRefAttr:$group);
  let results = (outs MSAMP_Bundle:$result);
  let assemblyFormat = "$input `over` $group attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def MSAMP_AllGatherOp : MSAMP_Op<"all_gather", [Pure, SameOperandsAndResultType,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "whole tensors on every rank, from what each updated";
  let description = [{
    Payloads travel as they are stored: every rank has the scales already.

    * (C1) `group` is that of the layout's sharding
    * (C2) `input` is a bundle of a role
  }];
  let arguments = (ins MSAMP_Bundle:$input, FlatSymbolRefAttr:$group);
  let results = (outs MSAMP_Bundle:$result);
  let assemblyFormat = "$input `over` $group attr-dict `:` type($input)";
  let hasVerifier = 1;
}

#endif // MSAMP_COLLECTIVE_OPS_TD
