// msamp-plan-dump: shows what a step plan holds, as text, JSON or MLIR.

#include "core/Formats.h"
#include "core/Plan.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

using namespace msamp;
using namespace msamp::rt;
using Json = nlohmann::ordered_json;

static const char usage[] =
    R"(usage: msamp-plan-dump PLAN [--json | --mlir | --ptx [--arch=NAME]]

  (default)      a summary for people
  --json         everything but code, as JSON; "launches" are those of one step
  --mlir         the optimizer and the fused launch
  --ptx          the step's kernel as PTX, of the architecture that --arch names
                 or else the one that runs on most
)";

static const char *phaseName(plan::Phase phase) {
  switch (phase) {
  case plan::Phase::Scalars:
    return "scalars";
  case plan::Phase::Reduce:
    return "reduce";
  case plan::Phase::Store:
    return "store";
  case plan::Phase::Inspect:
    return "inspect";
  case plan::Phase::Narrow:
    return "narrow";
  case plan::Phase::Settle:
    return "settle";
  }
  return "unknown";
}

static const char *scalingName(plan::Scaling scaling) {
  switch (scaling) {
  case plan::Scaling::None:
    return "none";
  case plan::Scaling::Current:
    return "current";
  case plan::Scaling::Delayed:
    return "delayed";
  case plan::Scaling::Bounded:
    return "bounded";
  }
  return "?";
}

static const char *kindName(plan::ImageKind kind) {
  return kind == plan::ImageKind::Ptx ? "PTX" : "cubin";
}

/// Bytes that one element of `classIndex` keeps, and that a step moves for it
/// beyond the reduce phase.
struct ClassBytes {
  size_t kept = 0, read = 0, written = 0;
  bool readsTwice = false;

  ClassBytes(const Plan &plan, size_t classIndex) {
    for (size_t role = 0; role < plan.roles.size(); ++role) {
      const plan::Storage &storage = plan.storage(classIndex, role);
      if (storage.dtype == plan::DType::None)
        continue;
      size_t size = dtypeSize(storage.dtype);
      bool isGrad = plan.roles[role].kind == plan::RoleKind::Grad;
      bool isOnlyWritten = plan.roles[role].kind == plan::RoleKind::Weight &&
                           plan.paramRole(classIndex) != role;
      kept += size;
      read += isOnlyWritten ? 0 : size;
      written += isGrad ? 0 : size;
      readsTwice |= !isGrad && storage.scaling == plan::Scaling::Current;
    }
  }
};

static void printText(const Plan &plan, const std::string &path) {
  uint64_t parameters = 0;
  std::vector<size_t> tensorsOfClass(plan.classes.size());
  for (const PlanTensor &tensor : plan.tensors) {
    parameters += tensor.numElements;
    ++tensorsOfClass[tensor.classIndex];
  }
  std::printf(
      "%s: step plan version %u, %" PRIu64 " bytes, by %s\n"
      "digest %s\n"
      "optimizer %s, schedule %s, %zu tensors, %" PRIu64 " parameters\n",
      path.c_str(), plan::kVersion, plan.fileSize, plan.producer.c_str(),
      plan.digest.c_str(), plan.optimizer.c_str(), plan.schedule.c_str(),
      plan.tensors.size(), parameters);
  if (plan.sharding)
    std::printf(
        "sharded %s over %u ranks, %s of gradients, %s collectives\n",
        plan::kShardingNames[static_cast<uint32_t>(plan.sharding->policy)],
        plan.sharding->ranks,
        plan::kRankReductionNames[static_cast<uint32_t>(
            plan.sharding->reduction)],
        plan::kCollectivesNames[static_cast<uint32_t>(
            plan.sharding->collectives)]);
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    ClassBytes bytes(plan, index);
    std::printf("\nclass %s: %zu tensors, %zu bytes a parameter kept; a step "
                "reads %zu%s and writes %zu\n",
                plan.classes[index].c_str(), tensorsOfClass[index], bytes.kept,
                bytes.read,
                !bytes.readsTwice      ? ""
                : plan.isSpeculative() ? " up to twice"
                                       : " twice",
                bytes.written);
    for (size_t role = 0; role < plan.roles.size(); ++role)
      if (plan.holds(index, role))
        std::printf("  %-16s %s\n", plan.roles[role].name.c_str(),
                    Plan::describe(plan.storage(index, role)).c_str());
    if (plan.sharding)
      std::printf("  %-16s %s\n", "grad on the wire",
                  Plan::describe(plan.wires[index]).c_str());
  }
  for (const PlanGroup &group : plan.groups) {
    std::printf("\ngroup %s:", group.name.c_str());
    for (size_t index = 0; index < plan.hypers.size(); ++index)
      std::printf(" %s=%g", plan.hypers[index].name.c_str(),
                  group.hyper[index]);
    std::printf("\n");
  }
  std::printf("\ntensors:\n");
  for (const PlanTensor &tensor : plan.tensors)
    std::printf("  %s %s class %s group %s\n", tensor.name.c_str(),
                Json(tensor.shape).dump().c_str(),
                plan.classes[tensor.classIndex].c_str(),
                plan.groups[tensor.group].name.c_str());
  if (!plan.nativeObject.empty()) {
    std::printf("\nnative code for %s, %zu bytes:\n", plan.target.c_str(),
                plan.nativeObject.size());
    for (const PlanKernel &kernel : plan.kernels)
      std::printf("  %s\n", kernel.symbol.c_str());
  }
  if (!plan.images.empty())
    std::printf("\ndevice code, one launch a step%s:\n",
                plan.hasFastMath ? ", fast math" : "");
  for (const PlanImage &image : plan.images) {
    std::printf("  %s %s, %zu bytes; %u threads, %u blocks a multiprocessor",
                image.arch.c_str(), kindName(image.info.kind), image.size,
                image.info.threads, image.info.blocks_per_sm);
    if (image.info.registers)
      std::printf(", %u registers, %u bytes spilled", image.info.registers,
                  image.info.spill_bytes);
    std::printf("\n");
  }
}

static Json toJson(const Plan &plan) {
  Json json;
  json["version"] = plan::kVersion;
  json["digest"] = plan.digest;
  json["producer"] = plan.producer;
  json["optimizer"] = plan.optimizer;
  json["schedule"] = plan.schedule;
  json["target"] = plan.target;
  json["fast_math"] = plan.hasFastMath;
  if (plan.sharding) {
    Json &sharding = json["sharding"];
    sharding["policy"] =
        plan::kShardingNames[static_cast<uint32_t>(plan.sharding->policy)];
    sharding["ranks"] = plan.sharding->ranks;
    sharding["reduction"] = plan::kRankReductionNames[static_cast<uint32_t>(
        plan.sharding->reduction)];
    sharding["collectives"] = plan::kCollectivesNames[static_cast<uint32_t>(
        plan.sharding->collectives)];
    for (size_t index = 0; index < plan.classes.size(); ++index)
      sharding["wires"][plan.classes[index]] =
          Plan::describe(plan.wires[index]);
  }
  json["classes"] = Json::object();
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    Json &entry = json["classes"][plan.classes[index]];
    ClassBytes bytes(plan, index);
    entry["bytes_kept"] = bytes.kept;
    entry["bytes_read"] = bytes.read;
    entry["bytes_written"] = bytes.written;
    for (size_t role = 0; role < plan.roles.size(); ++role) {
      const plan::Storage &storage = plan.storage(index, role);
      if (storage.dtype == plan::DType::None)
        continue;
      entry["formats"][plan.roles[role].name] = {
          {"dtype", dtypeName(storage.dtype)},
          {"scaling", scalingName(storage.scaling)},
          {"history", storage.history},
          {"overflow", storage.saturate ? "saturate" : "ieee"}};
    }
  }
  json["groups"] = Json::object();
  for (const PlanGroup &group : plan.groups)
    for (size_t index = 0; index < plan.hypers.size(); ++index)
      json["groups"][group.name][plan.hypers[index].name] = group.hyper[index];
  json["tensors"] = Json::array();
  for (const PlanTensor &tensor : plan.tensors)
    json["tensors"].push_back({{"name", tensor.name},
                               {"shape", tensor.shape},
                               {"class", plan.classes[tensor.classIndex]},
                               {"group", plan.groups[tensor.group].name}});
  json["launches"] = Json::array();
  // All phases of all tensors are one launch, on every backend: those that a
  // step may need.
  auto addLaunch = [&](const char *backend) {
    Json phases = Json::array();
    if (plan.isSpeculative()) {
      phases.push_back("settle");
      phases.push_back("narrow");
    }
    if (plan.schedule != "one_pass")
      phases.push_back("reduce");
    phases.push_back("store");
    json["launches"].push_back({{"backend", backend},
                                {"phases", phases},
                                {"tensors", plan.tensors.size()}});
  };
  if (!plan.nativeObject.empty())
    addLaunch("cpu");
  if (!plan.images.empty())
    addLaunch("cuda");
  json["kernels"] = Json::array();
  for (const PlanKernel &kernel : plan.kernels)
    json["kernels"].push_back(
        {{"symbol", kernel.symbol},
         {"phase", phaseName(kernel.phase)},
         {"isa", plan::kIsaNames[static_cast<uint32_t>(kernel.isa)]}});
  json["native_object_bytes"] = plan.nativeObject.size();
  json["images"] = Json::array();
  for (const PlanImage &image : plan.images)
    json["images"].push_back({{"arch", image.arch},
                              {"kind", kindName(image.info.kind)},
                              {"bytes", image.size},
                              {"threads", image.info.threads},
                              {"blocks_per_sm", image.info.blocks_per_sm},
                              {"access_bytes", image.info.access_bytes},
                              {"chunk_elements", image.info.chunk_elements},
                              {"shared_bytes", image.info.shared_bytes},
                              {"registers", image.info.registers},
                              {"spill_bytes", image.info.spill_bytes}});
  return json;
}

/// Prints the PTX for `arch`; if that is empty, of the least architecture that
/// is not for itself only.
static Status printPtx(const Plan &plan, const std::string &arch) {
  const PlanImage *best = nullptr;
  std::string has;
  for (const PlanImage &image : plan.images) {
    if (image.info.kind != plan::ImageKind::Ptx)
      continue;
    has += (has.empty() ? "" : ", ") + image.arch;
    bool isWanted = arch.empty() ? !image.info.is_exact : image.arch == arch;
    if (isWanted && (!best || image.info.capability < best->info.capability))
      best = &image;
  }
  if (!best)
    return notFound(has.empty() ? "the plan has no device code"
                                : "the plan has no PTX for " + arch +
                                      ", only for " + has);
  std::fwrite(plan.deviceCode.data() + best->offset, 1, best->size, stdout);
  return {};
}

static int dump(int argc, char **argv) {
  std::string path, mode, arch;
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (argument == "--help" || argument == "-h") {
      std::fputs(usage, stdout);
      return 0;
    }
    if (argument.rfind("--arch=", 0) == 0) {
      arch = argument.substr(7);
      continue;
    }
    bool isMode =
        argument == "--json" || argument == "--mlir" || argument == "--ptx";
    std::string &target = isMode ? mode : path;
    if ((!isMode && argument.rfind("--", 0) == 0) || !target.empty()) {
      std::fprintf(stderr, "msamp-plan-dump: error: unexpected argument '%s'\n",
                   argv[index]);
      return 1;
    }
    target = argument;
  }
  std::shared_ptr<const Plan> plan;
  Status status = path.empty() ? invalidArgument("no plan is given; see --help")
                               : Plan::load(path, plan);
  if (status.ok() && !arch.empty() && mode != "--ptx")
    status = invalidArgument("--arch goes with --ptx");
  if (status.ok() && mode == "--ptx")
    status = printPtx(*plan, arch);
  if (!status.ok()) {
    std::fprintf(stderr, "msamp-plan-dump: error: %s\n",
                 status.message().c_str());
    return 1;
  }
  if (mode == "--mlir")
    std::fputs(plan->mlir.c_str(), stdout);
  else if (mode == "--json")
    std::puts(toJson(*plan)
                  .dump(2, ' ', false, Json::error_handler_t::replace)
                  .c_str());
  else if (mode.empty())
    printText(*plan, path);
  if (std::fflush(stdout) == 0 && !std::ferror(stdout))
    return 0;
  std::fprintf(stderr,
               "msamp-plan-dump: error: cannot write to standard output\n");
  return 1;
}

int main(int argc, char **argv) {
  try {
    return dump(argc, argv);
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "msamp-plan-dump: error: out of memory\n");
    return 1;
  }
}
