// msamp-compile: from MLIR text, or from an optimizer's name and a checkpoint's
// header, to a step plan.

#include "Explain.h"
#include "msamp/Generator/StepGenerator.h"
#include "msamp/Pipelines/Pipelines.h"
#include "msamp/Target/StepPlan/StepPlan.h"
#include "safetensors/Safetensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/SourceMgr.h"

#include <csignal>

using namespace mlir;
using namespace mlir::msamp;
namespace cl = llvm::cl;

static cl::OptionCategory category("msamp-compile options");

static cl::opt<std::string> input(cl::Positional, cl::desc("[step.mlir]"),
                                  cl::cat(category));
static cl::opt<std::string>
    output("o", cl::desc("File to write (- for standard output)"),
           cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string>
    optimizer("optimizer", cl::desc("Library optimizer, or FILE.mlir[@SYMBOL]"),
              cl::value_desc("name"), cl::cat(category));
static cl::opt<OptLevel> optLevel(
    "opt-level", cl::desc("Storage formats"), cl::init(OptLevel::O3),
    cl::values(clEnumValN(OptLevel::O0, "O0", "everything f32"),
               clEnumValN(OptLevel::O1, "O1",
                          "f16 weight, E4M3 gradient, f32 states"),
               clEnumValN(OptLevel::O2, "O2",
                          "f16 weight, E4M3 gradient, E4M3 and f16 states"),
               clEnumValN(OptLevel::O3, "O3",
                          "E4M3 weight, f16 master, E4M3 gradient, E4M3 and "
                          "f16 states (default)")),
    cl::cat(category));
static cl::opt<std::string>
    params("params",
           cl::desc("Safetensors file whose header lists the tensors"),
           cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string>
    hyper("hyper", cl::desc("Hyper-parameters: lr=1e-2,weight_decay=0.01"),
          cl::value_desc("list"), cl::cat(category));
static cl::opt<ScalingRecipe> scaling(
    "scaling", cl::desc("Where scales come from"),
    cl::init(ScalingRecipe::Current),
    cl::values(clEnumValN(ScalingRecipe::Current, "current",
                          "the values themselves, exactly (default)"),
               clEnumValN(ScalingRecipe::Delayed, "delayed",
                          "the last 16 steps"),
               clEnumValN(ScalingRecipe::Bounded, "bounded",
                          "of states, a bound on their values; of the rest, "
                          "the last 16 steps")),
    cl::cat(category));
static cl::opt<std::string> formats(
    "formats",
    cl::desc("Formats of roles: weight=f32,master=none,first_moment=e4m3"),
    cl::value_desc("list"), cl::cat(category));
static cl::list<std::string>
    groups("group",
           cl::desc("Hyper-parameters of tensors whose name matches: "
                    "REGEX:weight_decay=0,lr=1e-4 (first match wins)"),
           cl::value_desc("rule"), cl::cat(category));
static cl::list<std::string>
    classes("class",
            cl::desc("Level or formats of tensors whose name matches: REGEX:O0 "
                     "or REGEX:weight=f32 (first match wins)"),
            cl::value_desc("rule"), cl::cat(category));
enum class ScheduleChoice { Auto, OnePass, TwoPhase, Speculative };
static cl::opt<ScheduleChoice> schedule(
    "schedule", cl::desc("Passes over memory"), cl::init(ScheduleChoice::Auto),
    cl::values(
        clEnumValN(ScheduleChoice::Auto, "auto", "as the scales ask (default)"),
        clEnumValN(ScheduleChoice::OnePass, "one-pass",
                   "refuse scales that need a second"),
        clEnumValN(ScheduleChoice::TwoPhase, "two-phase",
                   "amaxes first; refuse if nothing needs them"),
        clEnumValN(ScheduleChoice::Speculative, "speculative",
                   "one where bounds tell the scales, as much of two as they "
                   "leave open")),
    cl::cat(category));
static cl::opt<std::string>
    shard("shard",
          cl::desc("Elements that a rank updates: none (data parallel), fsdp2, "
                   "flat or tensor"),
          cl::value_desc("policy"), cl::cat(category));
static cl::opt<unsigned>
    ranks("ranks", cl::desc("Ranks that the step is for (default 1)"),
          cl::init(1), cl::cat(category));
static cl::opt<std::string>
    gradWire("grad-wire",
             cl::desc("Format in which narrow gradients travel: e4m3, e5m2, "
                      "bf16 or f32 (default: as they are kept)"),
             cl::value_desc("format"), cl::cat(category));
static cl::opt<std::string> gradReduction(
    "grad-reduction",
    cl::desc("What becomes of ranks' gradients: mean (default) or sum"),
    cl::value_desc("kind"), cl::cat(category));
static cl::opt<std::string>
    collectives("collectives",
                cl::desc("auto (default), separate, or fused into kernels"),
                cl::value_desc("kind"), cl::init("auto"), cl::cat(category));
static cl::opt<bool>
    explain("explain",
            cl::desc("Print what a step will do and cost, before any run"),
            cl::cat(category));
static cl::opt<std::string> explainSvg("explain-svg",
                                       cl::desc("Draw the same as an SVG file"),
                                       cl::value_desc("file"),
                                       cl::cat(category));
static cl::opt<std::string>
    chip("chip",
         cl::desc("GPU whose time --explain predicts: h200 (default), h100, "
                  "a100 or b200"),
         cl::init("h200"), cl::value_desc("name"), cl::cat(category));
static cl::list<std::string>
    targets("target", cl::CommaSeparated,
            cl::desc("What to make code for: cpu (default), cuda or both"),
            cl::value_desc("list"), cl::cat(category));
static cl::list<std::string>
    arch("arch", cl::CommaSeparated,
         cl::desc("Architectures for cuda (default sm_90a); the plan also has "
                  "PTX for all later ones"),
         cl::value_desc("sm_90a,sm_80"), cl::cat(category));
static cl::opt<bool>
    fastMath("fast-math",
             cl::desc("Of cuda code: approximate division and square root; "
                      "gives up bits that are the same everywhere"),
             cl::cat(category));
// For the tuning script; see convert-msamp-to-gpu.
static cl::opt<unsigned> accessBytes("tune-access-bytes", cl::Hidden,
                                     cl::cat(category));
static cl::opt<unsigned> threads("tune-threads", cl::Hidden, cl::cat(category));
static cl::opt<unsigned> blocksPerSM("tune-blocks-per-sm", cl::Hidden,
                                     cl::cat(category));
static cl::opt<unsigned> chunkElements("tune-chunk-elements", cl::Hidden,
                                       cl::cat(category));
static cl::opt<unsigned> stages("tune-stages", cl::Hidden, cl::cat(category));
enum class Emit { Plan, MLIR };
static cl::opt<Emit>
    emit("emit", cl::desc("What to write"), cl::init(Emit::Plan),
         cl::values(clEnumValN(Emit::Plan, "plan", "the step plan (default)"),
                    clEnumValN(Emit::MLIR, "mlir",
                               "the step's MLIR, before any pass")),
         cl::cat(category));
static cl::opt<bool>
    remarks("remarks", cl::desc("Say what was fused, what was not and why"),
            cl::cat(category));

static LogicalResult fail(const Twine &message) {
  llvm::errs() << "msamp-compile: error: " << message << "\n";
  return failure();
}

/// The step to compile: parsed from the input file, or generated.
static OwningOpRef<ModuleOp> getModule(MLIRContext &context,
                                       llvm::SourceMgr &sources) {
  if (!input.empty()) {
    std::string message;
    auto buffer = openInputFile(input, &message);
    if (!buffer) {
      (void)fail(message);
      return {};
    }
    sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
    return parseSourceFile<ModuleOp>(sources, &context);
  }
  ::msamp::rt::SafetensorsFile file;
  ::msamp::rt::Status status = ::msamp::rt::SafetensorsFile::open(params, file);
  if (!status.ok()) {
    (void)fail(status.message());
    return {};
  }
  StepRequest request;
  request.optimizer = optimizer;
  request.level = optLevel;
  request.source = params;
  request.hyper = hyper;
  request.formats = formats;
  request.scaling = scaling;
  request.groups.assign(groups.begin(), groups.end());
  request.classes.assign(classes.begin(), classes.end());
  for (const ::msamp::rt::SafetensorsView &view : file.tensors()) {
    if (view.dtype != "F32" && view.dtype != "F16" && view.dtype != "BF16") {
      (void)fail("parameter '" + view.name + "' in " + params + " is " +
                 view.dtype + ", expected F32, F16 or BF16");
      return {};
    }
    request.tensors.push_back({view.name, view.shape});
  }
  return generateStep(&context, request);
}

template <typename Options> static void setSharding(Options &options) {
  options.shard = shard;
  options.ranks = ranks;
  options.gradWire = gradWire;
  options.gradReduction = gradReduction;
  options.collectives = collectives;
}

static std::string getSchedule() {
  return schedule == ScheduleChoice::Auto       ? "auto"
         : schedule == ScheduleChoice::OnePass  ? "one-pass"
         : schedule == ScheduleChoice::TwoPhase ? "two-phase"
                                                : "speculative";
}

static bool hasTarget(llvm::StringRef target) {
  return targets.empty() ? target == "cpu"
                         : llvm::is_contained(targets, target.str());
}

static LogicalResult checkOptions() {
  if (input.empty() == optimizer.empty())
    return fail("give either a step.mlir or --optimizer");
  if (input.empty() && params.empty())
    return fail("--optimizer needs --params, whose header lists the tensors");
  if (!input.empty())
    for (cl::Option *option : std::initializer_list<cl::Option *>{
             &params, &hyper, &formats, std::addressof<cl::Option>(groups),
             std::addressof<cl::Option>(classes), &optLevel, &scaling})
      if (option->getNumOccurrences())
        return fail("--" + option->ArgStr + " goes with --optimizer; " + input +
                    " says it itself");
  for (const std::string &target : targets)
    if (target != "cpu" && target != "cuda")
      return fail("unknown target '" + target + "', expected cpu or cuda");
  if (!arch.empty() && !hasTarget("cuda"))
    return fail("--arch goes with --target=cuda");
  if (fastMath && !hasTarget("cuda"))
    return fail("--fast-math goes with --target=cuda");
  llvm::Regex pattern("^sm_[0-9]+[a-z]?$");
  llvm::StringSet<> chips;
  for (const std::string &chip : arch) {
    if (!pattern.match(chip))
      return fail("unknown architecture '" + chip +
                  "', expected one such as sm_80 or sm_90a");
    if (!chips.insert(chip).second)
      return fail("--arch names '" + chip + "' twice");
  }
  if (shard.empty())
    for (cl::Option *option : std::initializer_list<cl::Option *>{
             &ranks, &gradWire, &gradReduction, &collectives})
      if (option->getNumOccurrences())
        return fail("--" + option->ArgStr + " goes with --shard");
  if (ranks < 1 || ranks > 65536)
    return fail("--ranks is " + Twine(ranks) + ", expected 1 to 65536");
  if (output.empty() && emit == Emit::Plan && !explain && explainSvg.empty())
    return fail("no output file is given; see -o");
  if (explain && output == "-")
    return fail("--explain and -o - both want standard output");
  if (emit != Emit::Plan && (explain || !explainSvg.empty()))
    return fail(
        "--explain and --explain-svg are about plans; leave out --emit");
  if (!findChip(chip))
    return fail("unknown chip '" + chip +
                "', expected h200, h100, a100 or "
                "b200");
  return success();
}

/// Writes `bytes` to the output file, or to standard output.
static LogicalResult write(StringRef bytes) {
  if (!output.empty() && output != "-") {
    if (llvm::Error error = writeFileAtomically(output, bytes))
      return fail(llvm::toString(std::move(error)));
    return success();
  }
  llvm::outs() << bytes;
  llvm::outs().flush();
  std::error_code error = llvm::outs().error();
  llvm::outs().clear_error();
  return error ? fail("cannot write to standard output: " + error.message())
               : success();
}

/// Prints or draws what a step of the plan does.
static LogicalResult explainPlan(const std::string &bytes) {
  std::shared_ptr<const ::msamp::rt::Plan> plan;
  ::msamp::rt::Status status = ::msamp::rt::Plan::parse(
      "in memory", reinterpret_cast<const std::byte *>(bytes.data()),
      bytes.size(), plan);
  if (!status.ok())
    return fail(status.message());
  Explanation explanation(*plan, *findChip(chip));
  if (explain) {
    llvm::outs() << explanation.getText();
    llvm::outs().flush();
  }
  if (explainSvg.empty())
    return success();
  if (llvm::Error error = writeFileAtomically(explainSvg, explanation.getSvg()))
    return fail(llvm::toString(std::move(error)));
  return success();
}

static LogicalResult compile() {
  if (failed(checkOptions()))
    return failure();
  DialectRegistry registry;
  registerMSAMPDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context);
  // The op that a diagnostic is about says more than its printed form.
  context.printOpOnDiagnostic(false);
  OwningOpRef<ModuleOp> module = getModule(context, sources);
  if (!module || failed(verify(*module)))
    return failure();
  if (emit == Emit::MLIR) {
    std::string text;
    llvm::raw_string_ostream(text) << *module;
    return write(text);
  }
  // A kind without a filter of its own is off, whatever `all` says.
  remark::RemarkCategories categories;
  categories.passed = categories.missed = "msamp-.*";
  if (remarks &&
      failed(remark::enableOptimizationRemarks(
          context, nullptr, std::make_unique<remark::RemarkEmittingPolicyAll>(),
          categories, /*printAsEmitRemarks=*/true)))
    return fail("cannot enable remarks");
  PassManager pm(&context);
  if (hasTarget("cuda")) {
    StepToCUDAOptions options;
    options.withCPU = hasTarget("cpu");
    options.arch = arch.empty()
                       ? SmallVector<std::string>{"sm_90a"}
                       : SmallVector<std::string>(arch.begin(), arch.end());
    options.accessBytes = accessBytes;
    options.threads = threads;
    options.blocksPerSM = blocksPerSM;
    options.chunkElements = chunkElements;
    options.stages = stages;
    options.fastMath = fastMath;
    options.schedule = getSchedule();
    setSharding(options);
    buildStepToCUDAPipeline(pm, options);
  } else {
    StepToCPUOptions options;
    options.schedule = getSchedule();
    setSharding(options);
    buildStepToCPUPipeline(pm, options);
  }
  if (failed(pm.run(*module)))
    return failure();
  FailureOr<std::string> plan = serializeStepPlan(*module);
  if (failed(plan))
    return failure();
  if (explain || !explainSvg.empty())
    if (failed(explainPlan(*plan)))
      return failure();
  return output.empty() ? success() : write(*plan);
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file that grows past a limit is an error to report, not a reason to die.
  std::signal(SIGXFSZ, SIG_IGN);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(
      argc, argv,
      "msamp-compile: compiles an optimizer step to a step plan\n\n"
      "  msamp-compile step.mlir -o step.msplan\n"
      "  msamp-compile --optimizer=adamw --params model.safetensors -o "
      "step.msplan\n");
  return failed(compile());
}
