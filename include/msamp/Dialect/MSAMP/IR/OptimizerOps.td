// Optimizers, layouts, and the update that wraps the one around the other.

#ifndef MSAMP_OPTIMIZER_OPS_TD
#define MSAMP_OPTIMIZER_OPS_TD

include "msamp/Dialect/MSAMP/IR/MSAMPTypes.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// Optimizer
//===----------------------------------------------------------------------===//

def MSAMP_OptimizerOp : MSAMP_Op<"optimizer",
    [Symbol, IsolatedFromAbove]> {
  let summary = "an optimizer as scalar maths, without formats or ranks";
  let description = [{
    `scalars` runs once a tensor and step, in f64: it receives `step` (from 1) and
    the hyper-parameters in the order of `hyper`, and yields f64 values. `body` is
    elementwise f32: it receives `param`, `grad`, the states in the order of
    `states`, and the yielded scalars, each rounded once to f32; it yields the new
    parameter and the new states.

    Both regions are one block over a closed set of ops whose bits are defined
    everywhere: `arith` constants, add, sub, mul, div, neg, compares, select,
    minimum and maximum; i1/i32/i64 add, sub, mul, bit ops, shifts by a constant,
    compares, bitcasts, extensions and sitofp; `math` sqrt and absf; in `body`
    also `math.fma` on f32, in `scalars` also `msamp.powi`.

    * (C1) `scalars` takes i64 and one f64 a hyper-parameter, yields only f64
    * (C2) `body` takes f32 only: param, grad, each state, each scalar
    * (C3) `body` yields one f32 for param and each state
    * (C4) ops are of the closed set, without fast-math flags
    * (C5) names of states and hyper-parameters are distinct; states do not take the
      names of the fixed roles
    * (C6) every default lies in its legal range

    ```mlir
    msamp.optimizer @sgd_plain states() hyper(lr = 1.0e-3 in [0.0, inf))
    scalars(%step: i64, %lr: f64) {
      msamp.yield %lr : f64
    } body(%param: f32, %grad: f32, %lr: f32) {
      %update = arith.mulf %lr, %grad : f32
      %new = arith.subf %param, %update : f32
      msamp.yield %new : f32
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      TypedArrayAttrBase<MSAMP_StateAttr, "states">:$states,
      TypedArrayAttrBase<MSAMP_HyperAttr, "hyper-parameters">:$hyper);
  let regions = (region SizedRegion<1>:$scalars, SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    size_t getNumStates() { return getStates().size(); }
    StateAttr getState(size_t index) {
      return cast<StateAttr>(getStates()[index]);
    }
    /// The hyper-parameter called `name`, or null.
    HyperAttr findHyper(StringRef name);
    /// Roles that a storage class gives a format, in the order of operands,
    /// payloads and files: weight, master_weight, grad, then the states.
    SmallVector<StringRef> getRoles();
  }];
}

def MSAMP_YieldOp : MSAMP_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["OptimizerOp", "WrappedUpdateOp"]>]> {
  let summary = "end a region of an optimizer or wrapper with its results";
  let arguments = (ins Variadic<AnyTypeOf<[F32, F64]>>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def MSAMP_PowiOp : MSAMP_Op<"powi", [Pure,
    AllTypesMatch<["base", "result"]> /*C1*/]> {
  let summary = "integer power by a fixed square-and-multiply";
  let description = [{
    The same bits on every target, unlike a libm. With `n = |exponent|`:
    `r = 1; while (n) { if (n & 1) r = r * b; b = b * b; n >>= 1; }`, each product
    rounded; then `1 / r` if the exponent is negative.

    * (C1) `base` and `result` have one type
  }];
  let arguments = (ins AnyTypeOf<[F32, F64]>:$base, I64:$exponent);
  let results = (outs AnyTypeOf<[F32, F64]>:$result);
  let assemblyFormat = "$base `,` $exponent attr-dict `:` type($base)";
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

def MSAMP_LayoutOp : MSAMP_Op<"layout", [Symbol, SymbolTable, NoTerminator,
    IsolatedFromAbove, NoRegionArguments, SingleBlock,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the tensors of a model, their storage classes and groups";
  let description = [{
    A table: what a bundle over this layout contains. Order of `tensor` ops is the
    order of tensors everywhere.

    `sharding` says which elements of each tensor a rank of the group updates, and so
    keeps states of. Gradients of ranks are reduced by their mean, or `by` their sum.
    W is the number of ranks:

    * `none`: all (data parallel)
    * `fsdp2`: rows of dimension 0, ceil(rows / W) a rank while there are any
    * `flat`: of all elements of all tensors end to end, ceil(n / W) a rank
    * `tensor`: whole tensors; the largest first, each to the rank with the fewest
      elements so far (of equals the first)

    * (C1) holds only `storage_class`, `param_group` and `tensor` ops
    * (C2) the group of a sharding is defined; gradients are not reduced by `max`
    * (C3) every class of a sharded layout has a format for "wire"; its "grad" is f32

    ```mlir
    msamp.layout @model {
      msamp.storage_class @matrix level(O3)
      msamp.param_group @decay {lr = 1.0e-3 : f64}
      msamp.tensor "wte" : tensor<50257x768xf32> class(@matrix) group(@decay)
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      OptionalAttr<MSAMP_ShardingPolicyAttr>:$sharding,
      OptionalAttr<FlatSymbolRefAttr>:$group,
      MSAMP_DefaultRankReductionAttr:$reduction);
  let regions = (region SizedRegion<1>:$table);
  let assemblyFormat = [{
    $sym_name
    (`sharding` `(` custom<EnumKeyword>($sharding)^ `over` $group
        (`by` custom<EnumKeyword>($reduction)^)? `)`)?
    attr-dict-with-keyword $table
  }];
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "StringRef":$name)>];
}

def MSAMP_StorageClassOp : MSAMP_Op<"storage_class",
    [Symbol, HasParent<"LayoutOp">]> {
  let summary = "formats of each role for the tensors of one class";
  let description = [{
    `formats` maps roles to `#msamp.storage` (or to "none": the role is absent).
    Before `msamp-infer-storage` a `level` may stand for what `formats` leaves out;
    after it `formats` is complete and `level` only a note.

    * (C1) each entry is a storage attribute or "none"
    * (C2) "none" is for master_weight only
    * (C3) a scaled grad is `current`: its scale comes with it
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      OptionalAttr<MSAMP_OptLevelAttr>:$level,
      DefaultValuedAttr<DictionaryAttr, "{}">:$formats);
  let assemblyFormat =
      "$sym_name (`level` `(` custom<EnumKeyword>($level)^ `)`)? ($formats^)? attr-dict-with-keyword";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The format of `role`, or null if this class does not hold it.
    StorageAttr getStorage(StringRef role);
    /// The role that the optimizer reads and updates as the parameter: the master
    /// weight where there is one, else the weight.
    StringRef getParamRole();
  }];
}

def MSAMP_ParamGroupOp : MSAMP_Op<"param_group",
    [Symbol, HasParent<"LayoutOp">]> {
  let summary = "hyper-parameters that a group of tensors shares";
  let description = [{
    Hyper-parameters left out take the optimizer's default.

    * (C1) each entry is an f64
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      DefaultValuedAttr<DictionaryAttr, "{}">:$hyper);
  let assemblyFormat = "$sym_name ($hyper^)? attr-dict-with-keyword";
  let hasVerifier = 1;
}

def MSAMP_TensorOp : MSAMP_Op<"tensor", [HasParent<"LayoutOp">]> {
  let summary = "one tensor: name, logical type, class and group";
  let description = [{
    The name is a string, for a model may call a tensor like a class. The logical
    element type is f32 whatever the storage. Without a class,
    `msamp-infer-storage` picks @matrix (two dimensions or more) or @vector;
    without a group, @default.

    * (C1) the type is a static f32 tensor of fewer than 2^63 elements
    * (C2) class and group, where given, are declared in the layout
    * (C3) the name is not empty and no other tensor of the layout has it
  }];
  let arguments = (ins StrAttr:$name, TypeAttr:$type,
      OptionalAttr<FlatSymbolRefAttr>:$storage_class,
      OptionalAttr<FlatSymbolRefAttr>:$group);
  let assemblyFormat = [{
    $name `:` $type (`class` `(` $storage_class^ `)`)?
    (`group` `(` $group^ `)`)? attr-dict-with-keyword
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    RankedTensorType getTensorType() { return cast<RankedTensorType>(getType()); }
  }];
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

def MSAMP_WrappedUpdateOp : MSAMP_Op<"wrapped_update", [Pure,
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<InferTypeOpInterface, ["inferReturnTypes"]>]> {
  let summary = "step an ordinary optimizer on stored formats (OptimWrapper)";
  let description = [{
    Dequantizes the gradient, the parameter (the master weight where there is one)
    and the states, runs `optimizer` on them, and stores the results again in the
    formats of their operands; the weight is quantized from the stored master.
    `pre` sees (param, grad) and yields the gradient that the optimizer gets;
    `post` sees (param before, param after) and yields the parameter to store.

    Results are the new weight, the new master weight if there is one, and the new
    states, of the operands' types. A tensor whose gradient is not finite anywhere
    in the launch leaves everything as it was.

    `msamp-pack-updates` turns the tensor form into the bundle form, which
    `msamp-expand-wrapper` makes explicit.

    * (C1) `optimizer` is defined, here or in the compiler's library
    * (C2) there is one state operand for each of its states
    * (C3) operands are all bundles over one layout, of the roles they stand for, or
      all tensors and scaled tensors of one shape
    * (C4) `pre` and `post` take two f32 and yield one, over the closed op set

    ```mlir
    %w1, %m1 = msamp.wrapped_update @momentum weight(%w : !msamp.bundle<@model, weight>)
        grad(%g : !msamp.bundle<@model, grad>) states(%m : !msamp.bundle<@model, momentum>)
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$optimizer,
      MSAMP_Updatable:$weight, Optional<MSAMP_Updatable>:$master_weight,
      MSAMP_Updatable:$grad, Variadic<MSAMP_Updatable>:$states,
      OptionalAttr<StrAttr>:$tensor_name);
  let results = (outs Variadic<MSAMP_Updatable>:$updated);
  let regions = (region MaxSizedRegion<1>:$pre, MaxSizedRegion<1>:$post);
  let assemblyFormat = [{
    $optimizer (`name` $tensor_name^)? `weight` `(` $weight `:` type($weight) `)`
    (`master_weight` `(` $master_weight^ `:` type($master_weight) `)`)?
    `grad` `(` $grad `:` type($grad) `)`
    (`states` `(` $states^ `:` type($states) `)`)?
    (`pre` $pre^)? (`post` $post^)? attr-dict
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
  let extraClassDeclaration = [{
    /// Whether operands are bundles rather than single tensors.
    bool isBundled() { return isa<BundleType>(getWeight().getType()); }
  }];
}

def MSAMP_UpdateOp : MSAMP_Op<"update", [Pure,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "run an optimizer's maths on f32 bundles";
  let description = [{
    The bare optimizer: param, grad and states in f32 in, param and states in f32
    out. `msamp-expand-wrapper` makes it, `msamp-fuse-step` takes it into a launch.

    * (C1) operands and results are wide bundles over one layout
    * (C2) their numbers are those of the optimizer's body
  }];
  let arguments = (ins FlatSymbolRefAttr:$optimizer,
      Variadic<MSAMP_Bundle>:$inputs);
  let results = (outs Variadic<MSAMP_Bundle>:$outputs);
  let assemblyFormat = [{
    $optimizer `(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
}

def MSAMP_PackOp : MSAMP_Op<"pack", [Pure]> {
  let summary = "view single tensors as a bundle";
  let description = [{
    Operands are in the order of the layout's tensors. Nothing is copied: the step
    plan binds the tensors in place.

    * (C1) `result` is a bundle of a role
  }];
  let arguments = (ins Variadic<MSAMP_Updatable>:$tensors);
  let results = (outs MSAMP_Bundle:$result);
  let assemblyFormat =
      "`(` $tensors `)` attr-dict `:` functional-type($tensors, $result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def MSAMP_UnpackOp : MSAMP_Op<"unpack", [Pure]> {
  let summary = "view a bundle as its single tensors";
  let description = [{
    * (C1) `bundle` is a bundle of a role
  }];
  let arguments = (ins MSAMP_Bundle:$bundle);
  let results = (outs Variadic<MSAMP_Updatable>:$tensors);
  let assemblyFormat =
      "`(` $bundle `)` attr-dict `:` functional-type($bundle, $tensors)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif // MSAMP_OPTIMIZER_OPS_TD
