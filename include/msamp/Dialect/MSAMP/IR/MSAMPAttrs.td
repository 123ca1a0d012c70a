// How values are stored and scaled, and what an optimizer declares.

#ifndef MSAMP_ATTRS_TD
#define MSAMP_ATTRS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class MSAMP_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<MSAMP_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

class MSAMP_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::msamp";
  let genSpecializedAttr = 0;
}

// An enum as an op's attribute; ops print its bare keyword, custom<EnumKeyword>.
class MSAMP_EnumAttr<I32EnumAttr enum, string attrMnemonic>
    : EnumAttr<MSAMP_Dialect, enum, attrMnemonic> {
  let assemblyFormat = "`<` $value `>`";
}

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

def MSAMP_Granularity : MSAMP_Enum<"Granularity", "elements that share a scale",
    [I32EnumAttrCase<"PerTensor", 0, "per_tensor">]>;

def MSAMP_ScalingRecipe : MSAMP_Enum<"ScalingRecipe", "where a scale comes from",
    [I32EnumAttrCase<"Current", 0, "current">,
     I32EnumAttrCase<"Delayed", 1, "delayed">,
     I32EnumAttrCase<"Bounded", 2, "bounded">]>;

def MSAMP_Overflow : MSAMP_Enum<"Overflow", "what a cast does above the range",
    [I32EnumAttrCase<"Saturate", 0, "saturate">,
     I32EnumAttrCase<"IEEE", 1, "ieee">]>;
def MSAMP_OverflowAttr : MSAMP_EnumAttr<MSAMP_Overflow, "overflow">;

def MSAMP_OptLevel : MSAMP_Enum<"OptLevel", "named choice of storage formats",
    [I32EnumAttrCase<"O0", 0>, I32EnumAttrCase<"O1", 1>,
     I32EnumAttrCase<"O2", 2>, I32EnumAttrCase<"O3", 3>]>;
def MSAMP_OptLevelAttr : MSAMP_EnumAttr<MSAMP_OptLevel, "opt_level">;

def MSAMP_StateRange : MSAMP_Enum<"StateRange", "values that a state can hold",
    [I32EnumAttrCase<"Signed", 0, "signed">,
     I32EnumAttrCase<"NonNegative", 1, "nonnegative">]>;

def MSAMP_ReduceKind : MSAMP_Enum<"ReduceKind", "order-independent reduction",
    [I32EnumAttrCase<"Max", 0, "max">, I32EnumAttrCase<"Sum", 1, "sum">]>;
def MSAMP_ReduceKindAttr
    : MSAMP_EnumAttr<MSAMP_ReduceKind, "reduce_kind">;

def MSAMP_ReduceScope : MSAMP_Enum<"ReduceScope", "elements that a reduce spans",
    [I32EnumAttrCase<"Tensor", 0, "tensor">, I32EnumAttrCase<"All", 1, "all">]>;
def MSAMP_ReduceScopeAttr
    : MSAMP_EnumAttr<MSAMP_ReduceScope, "reduce_scope">;

def MSAMP_UniformKind : MSAMP_Enum<"UniformKind", "per-tensor kernel input",
    [I32EnumAttrCase<"Scalar", 0, "scalar">,
     I32EnumAttrCase<"ScaleInv", 1, "scale_inv">,
     I32EnumAttrCase<"OldScale", 2, "old_scale">,
     I32EnumAttrCase<"Amax", 3, "amax">,
     I32EnumAttrCase<"History", 4, "history">,
     I32EnumAttrCase<"StoredAmax", 5, "stored_amax">,
     I32EnumAttrCase<"StoredRatio", 6, "stored_ratio">,
     I32EnumAttrCase<"Settled", 7, "settled">]>;
def MSAMP_UniformKindAttr
    : MSAMP_EnumAttr<MSAMP_UniformKind, "uniform_kind">;

def MSAMP_ResultKind : MSAMP_Enum<"ResultKind", "what a kernel's reduce reports",
    [I32EnumAttrCase<"Amax", 0, "amax">, I32EnumAttrCase<"Scale", 1, "scale">,
     I32EnumAttrCase<"Saturated", 2, "saturated">,
     I32EnumAttrCase<"Flushed", 3, "flushed">,
     I32EnumAttrCase<"Fingerprint", 4, "fingerprint">,
     I32EnumAttrCase<"Stored", 5, "stored">,
     I32EnumAttrCase<"Ratio", 6, "ratio">]>;
def MSAMP_ResultKindAttr
    : MSAMP_EnumAttr<MSAMP_ResultKind, "result_kind">;

// Numbered as in step plans.
def MSAMP_Phase : MSAMP_Enum<"Phase", "pass over the elements of a step",
    [I32EnumAttrCase<"Reduce", 1, "reduce">,
     I32EnumAttrCase<"Store", 2, "store">,
     I32EnumAttrCase<"Inspect", 3, "inspect">,
     I32EnumAttrCase<"Narrow", 4, "narrow">,
     I32EnumAttrCase<"Settle", 5, "settle">]>;
def MSAMP_PhaseAttr : MSAMP_EnumAttr<MSAMP_Phase, "phase">;

def MSAMP_Schedule : MSAMP_Enum<"Schedule", "how phases follow one another",
    [I32EnumAttrCase<"TwoPhase", 0, "two_phase">,
     I32EnumAttrCase<"OnePass", 1, "one_pass">,
     I32EnumAttrCase<"Speculative", 2, "speculative">]>;
def MSAMP_ScheduleAttr : MSAMP_EnumAttr<MSAMP_Schedule, "schedule">;

def MSAMP_ShardingPolicy : MSAMP_Enum<"ShardingPolicy", "elements that a rank updates",
    [I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"FSDP2", 1, "fsdp2">,
     I32EnumAttrCase<"Flat", 2, "flat">, I32EnumAttrCase<"Tensor", 3, "tensor">]>;
def MSAMP_ShardingPolicyAttr : MSAMP_EnumAttr<MSAMP_ShardingPolicy, "sharding_policy">;

def MSAMP_RankReduction : MSAMP_Enum<"RankReduction", "what becomes of ranks' values",
    [I32EnumAttrCase<"Mean", 0, "mean">, I32EnumAttrCase<"Sum", 1, "sum">,
     I32EnumAttrCase<"Max", 2, "max">]>;
def MSAMP_RankReductionAttr : MSAMP_EnumAttr<MSAMP_RankReduction, "rank_reduction">;
/// The mean, unless an op says otherwise.
def MSAMP_DefaultRankReductionAttr
    : DefaultValuedOptionalAttr<MSAMP_RankReductionAttr,
                                "::mlir::msamp::RankReduction::Mean">;

def MSAMP_CollectiveKind : MSAMP_Enum<"CollectiveKind", "where kernels reach other ranks",
    [I32EnumAttrCase<"Auto", 0, "auto">, I32EnumAttrCase<"Separate", 1, "separate">,
     I32EnumAttrCase<"Fused", 2, "fused">]>;
def MSAMP_CollectiveKindAttr : MSAMP_EnumAttr<MSAMP_CollectiveKind, "collective_kind">;

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

def MSAMP_ScalingAttr : MSAMP_Attr<"Scaling", "scaling"> {
  let summary = "which elements share a scale, and where the scale comes from";
  let description = [{
    `current` takes the scale from the amax of the very values being quantized;
    `delayed` from the largest of the last `history` amaxes of earlier steps (and from the current one until that many steps have been seen); `bounded` from
    a bound on the values, derived from the optimizer's body and the largest
    magnitudes of what it reads, which are known before the step: no finite value
    saturates, and about a binade of the format is given away.

    ```mlir
    #msamp.scaling<per_tensor, current>
    #msamp.scaling<per_tensor, delayed, history = 16>
    #msamp.scaling<per_tensor, bounded>
    ```
  }];
  let parameters = (ins EnumParameter<MSAMP_Granularity>:$granularity,
      EnumParameter<MSAMP_ScalingRecipe>:$recipe,
      DefaultValuedParameter<"int64_t", "0">:$history);
  let assemblyFormat =
      "`<` $granularity `,` $recipe (`,` `history` `=` $history^)? `>`";
  let genVerifyDecl = 1;
}

def MSAMP_StorageAttr : MSAMP_Attr<"Storage", "storage"> {
  let summary = "format of one role's tensors in memory";
  let description = [{
    A payload type and, for scaled formats, how its scale is found. A scaled value
    `x` is stored as `cast(x * scale)` beside `scale_inv = 1 / scale`.

    * (C1) the payload is f8E4M3FN, f8E5M2, f16, bf16 or f32
    * (C2) FP8 payloads are scaled; bf16 and f32 payloads are not

    ```mlir
    #msamp.storage<f32>
    #msamp.storage<f8E4M3FN, scaling = <per_tensor, current>>
    ```
  }];
  let parameters = (ins "Type":$payload,
      OptionalParameter<"::mlir::msamp::ScalingAttr">:$scaling);
  let assemblyFormat =
      "`<` $payload (`,` `scaling` `=` custom<NestedScaling>($scaling)^)? `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Whether values are multiplied by a scale before they are cast.
    bool isScaled() const { return static_cast<bool>(getScaling()); }
    /// Whether the scale comes from earlier steps.
    bool isDelayed() const {
      return isScaled() && getScaling().getRecipe() == ScalingRecipe::Delayed;
    }
    /// Whether the scale comes from a bound on the values.
    bool isBounded() const {
      return isScaled() && getScaling().getRecipe() == ScalingRecipe::Bounded;
    }
    /// Scaled formats saturate: a scale may be stale by a binade. Plain casts
    /// follow IEEE, as their users expect of f16 and bf16.
    Overflow getOverflow() const {
      return isScaled() ? Overflow::Saturate : Overflow::IEEE;
    }
  }];
}

//===----------------------------------------------------------------------===//
// Declarations of an optimizer
//===----------------------------------------------------------------------===//

def MSAMP_HyperAttr : MSAMP_Attr<"Hyper", "hyper"> {
  let summary = "a hyper-parameter: name, default and legal range";
  let description = [{
    Values `v` with `lower <= v < upper` are legal (`upper` itself too where it is
    infinite). Groups, the command line and the runtime all check against it.
  }];
  let parameters = (ins "StringAttr":$name, "FloatAttr":$value,
      "FloatAttr":$lower, "FloatAttr":$upper);
  let assemblyFormat =
      "`<` $name `,` $value `,` $lower `,` $upper `>`";
  let extraClassDeclaration = [{
    /// Whether `candidate` lies in the legal range.
    bool accepts(double candidate) const;
    /// The range as text: "[0, 1)".
    std::string getRangeText() const;
  }];
}

def MSAMP_StateAttr : MSAMP_Attr<"State", "state"> {
  let summary = "an elementwise state: name and the values it can hold";
  let parameters = (ins "StringAttr":$name,
      EnumParameter<MSAMP_StateRange>:$range);
  let assemblyFormat = "`<` $name `,` $range `>`";
}

#endif // MSAMP_ATTRS_TD
