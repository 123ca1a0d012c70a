// See Options.h.

#include "Options.h"

#include <cmath>
#include <cstdlib>
#include <unistd.h>

using namespace msamp::rt;

const char msamp::rt::usage[] =
    R"(usage: msamp-run PLAN (--params P | --load S) [options]

Runs optimizer steps of a compiled step plan on safetensors files.

  --params FILE        start from these parameters (F32, F16 or BF16)
  --load FILE          continue from a state that --save or --save-sharded
                       wrote, of any policy and number of ranks
  --grads A,B,...      gradients: the k-th file for the k-th step, repeated if
                       there are more steps; or one pattern with {step}, which
                       counts from 1. {rank} is the rank's number, from 0
  --save FILE          write weights, scales and optimizer state
  --save-sharded DIR   the same as a folder, in which each rank writes a file
  --steps N            number of steps (default: the number of gradient files);
                       0 only loads and saves
  --backend NAME       cpu (default), cuda or reference
  --device N           device of the cuda backend (default 0; ranks of a sharded
                       plan take one after the other, from this one on)
  --offload            keep optimizer state in host memory and stream it through
                       the GPU in every step (cuda)
  --threads N          threads of the cpu backend (default: one a processor)
  --ranks N            ranks of a sharded plan (default: as it was compiled)
  --comm NAME          how ranks reach one another: local (default), as threads
                       of this process; mpi, as processes that mpirun starts;
                       nccl, as processes that torchrun or mpirun starts, or as
                       threads of this one. --threads is of each rank
  --deadline SECONDS   how long a rank waits for the others (default 300)
  --isa NAME           force x86-64, x86-64-v3 or x86-64-v4 code
  --hyper NAME=X,...   hyper-parameters, for all groups
  --grad-scale X       loss scale that the gradients carry (default 1)
  --allow-missing-grads  skip the step of tensors without a gradient
  --fingerprints       print every tensor's fingerprint
  --help               print this
)";

static std::vector<std::string> splitCommas(const std::string &text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t comma; (comma = text.find(',', begin)) != std::string::npos;
       begin = comma + 1)
    parts.push_back(text.substr(begin, comma - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

static Status parseNumber(const std::string &name, const std::string &text,
                          double &value) {
  char *end;
  value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value))
    return invalidArgument(name + " is '" + text + "', expected a number");
  return {};
}

static Status parseCount(const std::string &name, const std::string &text,
                         uint64_t minimum, uint64_t maximum, uint64_t &value) {
  char *end;
  value = std::strtoull(text.c_str(), &end, 10);
  bool isDigits = !text.empty() &&
                  text.find_first_not_of("0123456789") == std::string::npos;
  if (!isDigits || *end != '\0' || value < minimum || value > maximum)
    return invalidArgument(name + " is '" + text + "', expected " +
                           std::to_string(minimum) + " to " +
                           std::to_string(maximum));
  return {};
}

static Status parseHyper(const std::string &text, Options &options) {
  for (const std::string &part : splitCommas(text)) {
    size_t equals = part.find('=');
    if (equals == std::string::npos)
      return invalidArgument("--hyper has '" + part +
                             "', expected NAME=NUMBER");
    std::string number = part.substr(equals + 1);
    double value = number == "true";
    if (number != "true" && number != "false")
      MSAMP_RETURN_IF_ERROR(
          parseNumber("--hyper " + part.substr(0, equals), number, value));
    options.hyper.emplace_back(part.substr(0, equals), value);
  }
  return {};
}

static Status setOption(const std::string &name, const std::string &value,
                        Options &options) {
  uint64_t count;
  if (name == "--params")
    options.params = value;
  else if (name == "--load")
    options.load = value;
  else if (name == "--save")
    options.save = value;
  else if (name == "--save-sharded")
    options.saveSharded = value;
  else if (name == "--grads")
    options.grads = splitCommas(value);
  else if (name == "--backend")
    options.backend = value;
  else if (name == "--isa")
    options.isa = value;
  else if (name == "--hyper")
    return parseHyper(value, options);
  else if (name == "--grad-scale")
    return parseNumber(name, value, options.gradScale);
  else if (name == "--comm") {
    if (value != "local" && value != "mpi" && value != "nccl")
      return invalidArgument("unknown --comm '" + value +
                             "', expected local, mpi or nccl");
    options.comm = value;
  } else if (name == "--deadline") {
    MSAMP_RETURN_IF_ERROR(parseNumber(name, value, options.deadlineSeconds));
    if (options.deadlineSeconds <= 0 || options.deadlineSeconds > 1e6)
      return invalidArgument("--deadline is '" + value +
                             "', expected more than 0 and up to 1e6 seconds");
  } else if (name == "--ranks") {
    MSAMP_RETURN_IF_ERROR(parseCount(name, value, 1, 65536, count));
    options.ranks = static_cast<unsigned>(count);
  } else if (name == "--steps") {
    MSAMP_RETURN_IF_ERROR(parseCount(name, value, 0, 1000000000, count));
    options.steps = count;
  } else if (name == "--device") {
    MSAMP_RETURN_IF_ERROR(parseCount(name, value, 0, 1023, count));
    options.device = static_cast<int>(count);
  } else if (name == "--threads") {
    MSAMP_RETURN_IF_ERROR(parseCount(name, value, 1, 1024, count));
    options.threads = static_cast<unsigned>(count);
  } else
    return invalidArgument("unknown option '" + name + "'");
  return {};
}

/// Handles options without a value; false if `argument` is none.
static bool setFlag(const std::string &argument, Options &options) {
  if (argument == "--allow-missing-grads")
    return options.allowMissingGrads = true;
  if (argument == "--offload")
    return options.offload = true;
  if (argument == "--fingerprints")
    return options.printFingerprints = true;
  if (argument == "--help" || argument == "-h")
    return options.help = true;
  return false;
}

Status msamp::rt::parseOptions(int argc, char **argv, Options &options) {
  for (int index = 1; index < argc; ++index) {
    std::string argument = argv[index];
    if (setFlag(argument, options))
      continue;
    if (argument.rfind("--", 0) != 0) {
      if (!options.plan.empty())
        return invalidArgument("two plans are given: '" + options.plan +
                               "' and '" + argument + "'");
      options.plan = argument;
      continue;
    }
    size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      MSAMP_RETURN_IF_ERROR(setOption(argument.substr(0, equals),
                                      argument.substr(equals + 1), options));
      continue;
    }
    if (index + 1 == argc)
      return invalidArgument("option '" + argument + "' needs a value");
    MSAMP_RETURN_IF_ERROR(setOption(argument, argv[++index], options));
  }
  if (options.help)
    return {};
  if (options.plan.empty())
    return invalidArgument("no plan is given; see --help");
  if (options.params.empty() == options.load.empty())
    return invalidArgument("give one of --params and --load");
  if (options.grads.empty() && options.steps != 0)
    return invalidArgument("no gradients are given; see --grads");
  return {};
}

static constexpr char stepPlace[] = "{step}", rankPlace[] = "{rank}";

static void replace(std::string &text, const std::string &place,
                    uint64_t value) {
  std::string number = std::to_string(value);
  for (size_t at = 0; (at = text.find(place, at)) != std::string::npos;
       at += number.size())
    text.replace(at, place.size(), number);
}

std::string Options::gradPath(uint64_t step, unsigned rank) const {
  std::string path = grads[(step - 1) % grads.size()];
  replace(path, stepPlace, step);
  replace(path, rankPlace, rank);
  return path;
}

uint64_t Options::numSteps(unsigned rank) const {
  if (steps)
    return *steps;
  if (grads.size() > 1 || grads[0].find(stepPlace) == std::string::npos)
    return grads.size();
  // A pattern: as many steps as there are files from 1 on; one, whose error
  // will name the file, if there are none.
  uint64_t count = 0;
  while (::access(gradPath(count + 1, rank).c_str(), F_OK) == 0)
    ++count;
  return count ? count : 1;
}
