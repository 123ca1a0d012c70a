// Passes from msamp to msamp, in the order of the pipeline.

#ifndef MSAMP_TRANSFORMS_PASSES_TD
#define MSAMP_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def ResolveOptimizers : Pass<"msamp-resolve-optimizers", "::mlir::ModuleOp"> {
  let summary = "bring optimizers of the compiler's library into the module";
  let description = [{
    For each `msamp.wrapped_update` whose optimizer the module does not define, the
    definition is taken from the library (lib/Optimizers). A module's own definition
    of a name wins.

    Numerics: unchanged.
    Postcondition: every wrapped update names an optimizer of the module.
    (* example filepath=test/Dialect/MSAMP/Transforms/resolve-optimizers.mlir *)
  }];
}

def PackUpdates : Pass<"msamp-pack-updates", "::mlir::ModuleOp"> {
  let summary = "merge one-tensor updates of a function into a bundle update";
  let description = [{
    Updates of one function with one optimizer and equal `pre` and `post` become one
    bundled update over a new layout, whose tensors take their names from `name` and
    whose classes take the formats of the operands' types. Function arguments and
    results that only packs and unpacks touch become bundles themselves, unless the
    function is called or branches. A tensor without a master weight of its own, in a
    step where others have one, has its weight for one.

    Numerics: unchanged.
    Postcondition: no wrapped update has tensor operands.
    (* example filepath=test/Dialect/MSAMP/Transforms/pack-updates.mlir *)
  }];
  let dependentDialects = ["::mlir::func::FuncDialect"];
}

def InferStorage : Pass<"msamp-infer-storage", "::mlir::ModuleOp"> {
  let summary = "give every tensor a class and group, every class its formats";
  let description = [{
    Tensors without a class join @matrix (two dimensions or more) or @vector,
    tensors without a group @default; missing ones are declared with
    `default-level`. A class's `level` fills in what its `formats` leaves out.
    Groups are checked against the optimizer's hyper-parameters and completed with
    its defaults. Warns where a narrow weight has no master to keep small updates.

    Numerics: decides formats; computes nothing.
    Postcondition: classes and groups are complete.
    (* example filepath=test/Dialect/MSAMP/Transforms/infer-storage.mlir *)
  }];
  let options = [
    Option<"defaultLevel", "default-level", "::mlir::msamp::OptLevel",
           /*default=*/"::mlir::msamp::OptLevel::O3",
           "Level of classes that the layout does not declare",
           [{::llvm::cl::values(
              clEnumValN(::mlir::msamp::OptLevel::O0, "O0", "all f32"),
              clEnumValN(::mlir::msamp::OptLevel::O1, "O1", "f16 weight, f32 states"),
              clEnumValN(::mlir::msamp::OptLevel::O2, "O2", "f16 weight, 8/16-bit states"),
              clEnumValN(::mlir::msamp::OptLevel::O3, "O3", "E4M3 weight, f16 master, 8/16-bit states"))}]>
  ];
}

def LiftCollectives : Pass<"msamp-lift-collectives", "::mlir::ModuleOp"> {
  let summary = "take a rank's step over parts of tensors to one over whole tensors";
  let description = [{
    Where gradients of one-tensor updates come from `msamp.all_reduce`, or from
    `msamp.reduce_scatter` with weights that go to `msamp.all_gather`, updates take
    the collectives' operands and give whole weights, and the function gets the
    attributes `msamp.sharding` (`none` or `fsdp2`), `msamp.group` and, for sums,
    `msamp.reduction`, by which msamp-shard-step brings it back to a rank's form. All
    updates of a function are sharded alike; other collectives on tensors are refused.

    Numerics: unchanged.
    Postcondition: no collective on tensors is left.
    (* example filepath=test/Dialect/MSAMP/Transforms/lift-collectives.mlir *)
  }];
}

def ShardStep : Pass<"msamp-shard-step", "::mlir::ModuleOp"> {
  let summary = "bring a whole-model step to the form of one rank";
  let description = [{
    Declares a process group @dp of `ranks`, shards layouts by `policy`, and puts
    collectives around each bundled `msamp.wrapped_update`: the gradient, which must
    be an argument of the function, becomes the rank's own ("wire") and reaches the
    update by `msamp.reduce_scatter`; the new weight leaves it by `msamp.all_gather`,
    unless every rank updates all of it. Gradients travel in the format that their
    class has, or `grad-wire` for classes of narrow gradients; they are reduced by
    their mean, or their sum if `reduction` says so. A function that says
    how it is sharded (see msamp-lift-collectives) needs no `policy`; without either
    it stays as it is.

    Numerics: the gradient is the mean or sum over ranks; see
    `msamp.reduce_scatter`.
    Postcondition: every layout of an update is sharded, if there is a policy.
    (* example filepath=test/Dialect/MSAMP/Transforms/shard-step.mlir *)
  }];
  let options = [
    Option<"policy", "policy", "std::string", /*default=*/"\"\"",
           "none, fsdp2, flat or tensor">,
    Option<"ranks", "ranks", "unsigned", /*default=*/"1", "Ranks of the group">,
    Option<"gradWire", "grad-wire", "std::string", /*default=*/"\"\"",
           "Format in which narrow gradients travel: e4m3, e5m2, bf16 or f32">,
    Option<"reduction", "reduction", "std::string", /*default=*/"\"\"",
           "What becomes of gradients: mean (the default) or sum">,
    Option<"collectives", "collectives", "std::string", /*default=*/"\"auto\"",
           "auto, separate or fused">
  ];
}

def ExpandWrapper : Pass<"msamp-expand-wrapper", "::mlir::ModuleOp"> {
  let summary = "make dequantize, update, amax, scale and quantize explicit";
  let description = [{
    Replaces each bundled `msamp.wrapped_update`. `pre` and `post` are composed with
    the optimizer into a new one. The weight is quantized from the stored master.
    Where ranks update parts of tensors, an amax is that of all of them, by
    `msamp.all_reduce`.

    Numerics: defines them; see docs/Numerics.md.
    Postcondition: no wrapped update is left.
    (* example filepath=test/Dialect/MSAMP/Transforms/expand-wrapper.mlir *)
  }];
}

def FuseStep : Pass<"msamp-fuse-step", "::mlir::ModuleOp"> {
  let summary = "fuse a function of bundle ops into one launch";
  let description = [{
    A function whose ops are all bundle ops becomes an `msamp.launch` of its name,
    with one kernel for each storage class in use: vertical fusion from the first
    load to the last store, horizontal fusion over all tensors. Adds what a step
    reports: saturated and flushed counts, fingerprints, the gradient's amax.
    Functions without msamp ops are left alone. What ranks exchange is no part of
    the launch: phases end with their results, and the layout says the rest.

    Numerics: unchanged. The amax of a stored master is taken from the amax before
    storing, for rounding is monotone.
    Postcondition: no bundle op is left.
    (* example filepath=test/Dialect/MSAMP/Transforms/fuse-step.mlir *)
  }];
}

def SplitPhases : Pass<"msamp-split-phases", "::mlir::ModuleOp"> {
  let summary = "split kernels at reductions into reduce and store phases";
  let description = [{
    Ops that need the result of a reduction over varying values move to the store
    phase, where it is a `uniform`; what the reductions need is computed in the
    reduce phase, and again where the store phase needs it. A reduction over a
    uniform value is that value and splits nothing.

    The schedule follows from the formats: `one_pass` if every scale is known before
    the step, else `two_phase`. `schedule` asks for one of them, and fails if it is
    not the one. With `speculative` in place of `two_phase`, phase `settle` finds for
    each tensor what bounds on its amaxes tell, and only what they leave open is
    looked for before the store phase; fails where an amax that all operands go into
    has no bound, and where ranks share the step.

    With `inspect`, kernels of that phase are made too: what is left of the reduce
    phase where only the gradient has to be looked at.

    Numerics: unchanged.
    Postcondition: every kernel has a phase, and none uses a reduction's result.
    (* example filepath=test/Dialect/MSAMP/Transforms/split-phases.mlir *)
  }];
  let options = [
    Option<"inspect", "inspect", "bool", /*default=*/"false",
           "Make kernels that look at gradients only">,
    Option<"schedule", "schedule", "std::string", /*default=*/"\"auto\"",
           "auto, one-pass, two-phase or speculative">
  ];
}

def ExpandCasts : Pass<"msamp-expand-casts"> {
  let summary = "expand decode, encode and FP8 extf/truncf into integer maths";
  let description = [{
    Upstream leaves FP8 casts unlowered. Each becomes branch-free integer and f32
    ops, for scalars and vectors. Where an enclosing op has the unit attribute
    `msamp.native_f16`, f16 uses the target's own conversions; in device code,
    `msamp.native_casts` stands for PTX's conversions of f16 and bf16, and
    `msamp.native_fp8` for those of FP8 (sm_89 and later).

    Numerics: one rounding to nearest even; exact for decode. `arith.truncf` to FP8
    follows IEEE, as upstream defines it.
    Postcondition: no decode, no encode, no cast to or from FP8.
    (* example filepath=test/Dialect/MSAMP/Transforms/expand-casts.mlir *)
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::vector::VectorDialect"];
}

#endif // MSAMP_TRANSFORMS_PASSES_TD
