// See StepGenerator.h. Levels stay levels in the output: msamp-infer-storage
// completes them, so that generated and hand-written steps take one path.

#include "msamp/Generator/StepGenerator.h"
#include "msamp/Dialect/MSAMP/Transforms/StorageLevels.h"
#include "msamp/Optimizers/Library.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mlir::msamp;

/// Steps of a delayed scale's history where none are given.
static constexpr int64_t kDefaultHistory = 16;

namespace {

using FormatMap = llvm::StringMap<Attribute>;
using HyperMap = llvm::StringMap<double>;

/// An option "REGEX:SPEC", parsed as far as its kind goes.
struct Rule {
  std::string text;
  llvm::Regex regex;
  bool isMatched = false;
  /// Whether it is the first to match some tensor.
  bool isUsed = false;
  // of --group
  StringAttr group;
  // of --class
  OptLevel level = OptLevel::O3;
  FormatMap formats;
};

class Generator {
public:
  Generator(MLIRContext *context, const StepRequest &request)
      : context(context), request(request), builder(context),
        loc(FileLineColLoc::get(context, request.source, 0, 0)) {}

  OwningOpRef<ModuleOp> run() {
    module = ModuleOp::create(loc);
    builder.setInsertionPointToStart(module->getBody());
    if (failed(addOptimizer()) || failed(parseOptions()) || failed(addLayout()))
      return {};
    addStep();
    return std::move(module);
  }

private:
  InFlightDiagnostic error() { return emitError(loc); }

  //===--- Optimizer ---------------------------------------------------------//

  LogicalResult addOptimizer() {
    // An @ may also belong to the path.
    StringRef path = request.optimizer, symbol;
    if (!path.ends_with(".mlir"))
      std::tie(path, symbol) = path.rsplit('@');
    if (!path.ends_with(".mlir")) {
      OwningOpRef<OptimizerOp> found =
          loadLibraryOptimizer(context, request.optimizer);
      if (!found)
        return error() << "unknown optimizer '" << request.optimizer
                       << "'; the library has "
                       << llvm::join(getLibraryOptimizerNames(), ", ")
                       << ", and FILE.mlir[@SYMBOL] reads one from a file";
      optimizer = found.release();
      module->push_back(optimizer);
      return success();
    }
    OwningOpRef<ModuleOp> file = parseSourceFile<ModuleOp>(path, context);
    if (!file)
      return failure();
    SmallVector<OptimizerOp> candidates;
    for (auto candidate : file->getOps<OptimizerOp>())
      if (symbol.empty() || candidate.getSymName() == symbol)
        candidates.push_back(candidate);
    if (candidates.size() != 1)
      return error() << path << " has " << candidates.size() << " optimizers"
                     << (symbol.empty() ? "; name one with @SYMBOL"
                                        : " called @" + symbol.str());
    optimizer = candidates.front();
    optimizer->remove();
    module->push_back(optimizer);
    return success();
  }

  /// `name`, or another where the optimizer has taken it.
  std::string getFreeName(StringRef name) {
    return optimizer.getSymName() == name ? (name + "_0").str() : name.str();
  }

  //===--- Options -----------------------------------------------------------//

  LogicalResult parseOptions() {
    if (failed(parseFormats("--formats", request.formats, formats)) ||
        failed(parseHyper("--hyper", request.hyper, hyper)))
      return failure();
    for (const std::string &text : request.groups) {
      Rule rule;
      StringRef spec;
      HyperMap values = hyper;
      if (failed(splitRule("--group", text, rule, spec)) ||
          failed(parseHyper("--group '" + text + "'", spec, values)))
        return failure();
      rule.group = builder.getStringAttr("group" + Twine(groupRules.size()));
      groupHyper.push_back({rule.group, std::move(values)});
      groupRules.push_back(std::move(rule));
    }
    groupHyper.push_back({builder.getStringAttr("default"), hyper});
    for (const std::string &text : request.classes) {
      Rule rule;
      StringRef spec;
      if (failed(splitRule("--class", text, rule, spec)))
        return failure();
      std::optional<OptLevel> level = symbolizeOptLevel(spec);
      rule.level = level.value_or(request.level);
      if (!level) {
        rule.formats = formats;
        if (failed(parseFormats("--class '" + text + "'", spec, rule.formats)))
          return failure();
      }
      classRules.push_back(std::move(rule));
    }
    return success();
  }

  LogicalResult splitRule(StringRef option, const std::string &text, Rule &rule,
                          StringRef &spec) {
    StringRef pattern;
    std::tie(pattern, spec) = StringRef(text).rsplit(':');
    if (pattern.empty() || spec.empty())
      return error() << option << " is '" << text << "', expected REGEX:SPEC";
    rule.text = text;
    rule.regex = llvm::Regex(pattern);
    std::string reason;
    if (!rule.regex.isValid(reason))
      return error() << option << " '" << text
                     << "' has no valid regular expression: " << reason;
    return success();
  }

  /// Parses "lr=1e-2,maximize=true" over what `values` holds.
  LogicalResult parseHyper(const Twine &option, StringRef text,
                           HyperMap &values) {
    SmallVector<StringRef> parts;
    text.split(parts, ',', -1, /*KeepEmpty=*/false);
    for (StringRef part : parts) {
      auto [name, number] = part.split('=');
      HyperAttr declared = optimizer.findHyper(name);
      if (!declared)
        return error() << option << " sets '" << name
                       << "', which is no hyper-parameter of optimizer @"
                       << optimizer.getSymName() << "; it has " << listHyper();
      double value;
      if (number == "true" || number == "false")
        value = number == "true";
      else if (number.getAsDouble(value))
        return error() << option << " sets '" << name << "' to '" << number
                       << "', expected a number";
      if (!declared.accepts(value))
        return error() << option << " sets '" << name << "' to " << number
                       << ", outside of " << declared.getRangeText();
      values[name] = value;
    }
    return success();
  }

  std::string listHyper() {
    SmallVector<StringRef> names;
    for (auto entry : optimizer.getHyper().getAsRange<HyperAttr>())
      names.push_back(entry.getName());
    return llvm::join(names, ", ");
  }

  bool isState(StringRef role) {
    SmallVector<StringRef> roles = optimizer.getRoles();
    return llvm::is_contained(ArrayRef<StringRef>(roles).drop_front(3), role);
  }

  /// Parses "weight=f32,master=none,first_moment=e4m3/delayed".
  LogicalResult parseFormats(const Twine &option, StringRef text,
                             FormatMap &result) {
    SmallVector<StringRef> parts;
    text.split(parts, ',', -1, /*KeepEmpty=*/false);
    SmallVector<StringRef> roles = optimizer.getRoles();
    for (StringRef part : parts) {
      auto [name, format] = part.split('=');
      StringRef role = name == "master" ? StringRef(kMasterWeightRole) : name;
      if (!llvm::is_contained(roles, role))
        return error() << option << " gives '" << name
                       << "' a format, which is no role; roles are "
                       << llvm::join(roles, ", ");
      Attribute attribute = parseFormat(role, format);
      if (!attribute)
        return error() << option << " gives '" << name << "' the format '"
                       << format
                       << "', expected f32, bf16, f16, f16/unscaled, e4m3 or "
                          "e5m2 (scaled formats may end in /delayed or "
                          "/delayed-N, those of states in /bounded)"
                       << (role == kMasterWeightRole ? " or none" : "");
      result[role] = attribute;
    }
    return success();
  }

  /// The storage that `format` names, "none" for a master, or null.
  Attribute parseFormat(StringRef role, StringRef format) {
    if (format == "none" && role == kMasterWeightRole)
      return builder.getStringAttr("none");
    auto [name, recipe] = format.split('/');
    Type payload = llvm::StringSwitch<Type>(name)
                       .Case("f32", builder.getF32Type())
                       .Case("bf16", builder.getBF16Type())
                       .Case("f16", builder.getF16Type())
                       .Case("e4m3", Float8E4M3FNType::get(context))
                       .Case("e5m2", Float8E5M2Type::get(context))
                       .Default(Type());
    if (!payload)
      return {};
    bool canScale = !payload.isF32() && !payload.isBF16();
    bool isFp8 = canScale && !payload.isF16();
    ScalingAttr scaling;
    if (recipe.consume_front("delayed")) {
      // A gradient is scaled by whoever makes it.
      int64_t history = kDefaultHistory;
      if (!canScale || role == kGradRole ||
          (!recipe.empty() &&
           (!recipe.consume_front("-") || recipe.getAsInteger(10, history))) ||
          history < 1 || history > 1024)
        return {};
      scaling = ScalingAttr::get(context, Granularity::PerTensor,
                                 ScalingRecipe::Delayed, history);
    } else if (recipe == "bounded") {
      // Only what the optimizer computes for a state has a bound.
      if (!canScale || !isState(role))
        return {};
      scaling = ScalingAttr::get(context, Granularity::PerTensor,
                                 ScalingRecipe::Bounded, 0);
    } else if (recipe == "unscaled") {
      if (isFp8)
        return {};
    } else if (!recipe.empty()) {
      return {};
    } else if (canScale) {
      scaling = ScalingAttr::get(context, Granularity::PerTensor,
                                 ScalingRecipe::Current, 0);
    }
    return StorageAttr::get(context, payload, scaling);
  }

  //===--- Layout and step ---------------------------------------------------//

  LogicalResult addLayout() {
    layout = LayoutOp::create(builder, loc, getFreeName("model"));
    Block *table = &layout.getTable().front();
    builder.setInsertionPointToEnd(table);
    for (auto &[name, values] : groupHyper) {
      NamedAttrList entries;
      for (auto &value : values)
        entries.set(value.getKey(), builder.getF64FloatAttr(value.getValue()));
      ParamGroupOp::create(builder, loc, name, entries.getDictionary(context));
    }
    llvm::StringSet<> classes;
    for (const StepRequest::Tensor &tensor : request.tensors) {
      Rule *classRule = match(classRules, tensor.name);
      Rule *groupRule = match(groupRules, tensor.name);
      std::string className =
          addClass(classRule, tensor.shape.size() >= 2, classes);
      TensorOp::create(
          builder, NameLoc::get(builder.getStringAttr(tensor.name), loc),
          builder.getStringAttr(tensor.name),
          TypeAttr::get(
              RankedTensorType::get(tensor.shape, builder.getF32Type())),
          FlatSymbolRefAttr::get(context, className),
          FlatSymbolRefAttr::get(groupRule ? groupRule->group
                                           : builder.getStringAttr("default")));
    }
    for (Rule &rule : llvm::concat<Rule>(classRules, groupRules))
      if (!rule.isUsed)
        return error() << "'" << rule.text
                       << (rule.isMatched
                               ? "' matches only tensors that an earlier rule "
                                 "takes, in "
                               : "' matches no tensor of ")
                       << request.source;
    return success();
  }

  static Rule *match(std::vector<Rule> &rules, StringRef name) {
    Rule *first = nullptr;
    for (Rule &rule : rules) {
      if (!rule.regex.match(name))
        continue;
      rule.isMatched = true;
      if (!first)
        first = &rule;
    }
    if (first)
      first->isUsed = true;
    return first;
  }

  /// Replaces the scalings of the level's formats by the one asked for.
  void addScaling(OptLevel level, bool isMatrix, NamedAttrList &entries) {
    for (auto [index, role] : llvm::enumerate(optimizer.getRoles())) {
      bool isState = index >= 3;
      StorageAttr storage =
          isState
              ? getLevelStateStorage(context, level,
                                     optimizer.getState(index - 3).getRange())
              : getLevelStorage(context, level, isMatrix, role);
      // A gradient is scaled by whoever makes it.
      if (!storage || !storage.isScaled() || role == kGradRole)
        continue;
      bool isBounded = isState && request.scaling == ScalingRecipe::Bounded;
      auto scaling = ScalingAttr::get(context, Granularity::PerTensor,
                                      isBounded ? ScalingRecipe::Bounded
                                                : ScalingRecipe::Delayed,
                                      isBounded ? 0 : kDefaultHistory);
      entries.set(role,
                  StorageAttr::get(context, storage.getPayload(), scaling));
    }
  }

  /// Declares, once, the class of matrices or vectors under `rule`; returns its
  /// name.
  std::string addClass(Rule *rule, bool isMatrix, llvm::StringSet<> &classes) {
    std::string name = isMatrix ? kMatrixClass.str() : kVectorClass.str();
    if (rule)
      name += std::to_string(rule - classRules.data());
    const FormatMap &given = rule ? rule->formats : formats;
    OptLevel level = rule ? rule->level : request.level;
    auto master = given.find(kMasterWeightRole);
    hasMaster |= master != given.end()
                     ? isa<StorageAttr>(master->second)
                     : static_cast<bool>(getLevelStorage(
                           context, level, isMatrix, kMasterWeightRole));
    if (!classes.insert(name).second)
      return name;
    NamedAttrList entries;
    if (request.scaling != ScalingRecipe::Current)
      addScaling(level, isMatrix, entries);
    for (auto &entry : given)
      entries.set(entry.getKey(), entry.getValue());
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&layout.getTable().front());
    StorageClassOp::create(builder, loc, builder.getStringAttr(name),
                           OptLevelAttr::get(context, level),
                           entries.getDictionary(context));
    return name;
  }

  void addStep() {
    SmallVector<Type> types;
    for (StringRef role : optimizer.getRoles())
      if (role != kMasterWeightRole || hasMaster)
        types.push_back(BundleType::get(context, FlatSymbolRefAttr::get(layout),
                                        builder.getStringAttr(role)));
    SmallVector<Type> results;
    for (Type type : types)
      if (cast<BundleType>(type).getContent() != kGradRole)
        results.push_back(type);
    builder.setInsertionPointToEnd(module->getBody());
    auto function =
        func::FuncOp::create(builder, loc, getFreeName("step"),
                             builder.getFunctionType(types, results));
    Block *block = function.addEntryBlock();
    builder.setInsertionPointToStart(block);
    ValueRange arguments(block->getArguments());
    unsigned gradIndex = hasMaster ? 2 : 1;
    auto update = WrappedUpdateOp::create(
        builder, loc, FlatSymbolRefAttr::get(optimizer.getSymNameAttr()),
        arguments[0], hasMaster ? arguments[1] : Value(), arguments[gradIndex],
        arguments.drop_front(gradIndex + 1), StringAttr());
    func::ReturnOp::create(builder, loc, update.getUpdated());
  }

  MLIRContext *context;
  const StepRequest &request;
  OpBuilder builder;
  Location loc;
  OwningOpRef<ModuleOp> module;
  OptimizerOp optimizer;
  LayoutOp layout;
  FormatMap formats;
  HyperMap hyper;
  std::vector<Rule> groupRules, classRules;
  std::vector<std::pair<StringAttr, HyperMap>> groupHyper;
  bool hasMaster = false;
};

} // namespace

OwningOpRef<ModuleOp> mlir::msamp::generateStep(MLIRContext *context,
                                                const StepRequest &request) {
  return Generator(context, request).run();
}
