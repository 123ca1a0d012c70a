// Command line of msamp-run.

#ifndef MSAMP_TOOLS_MSAMP_RUN_OPTIONS_H
#define MSAMP_TOOLS_MSAMP_RUN_OPTIONS_H

#include "core/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace msamp::rt {

struct Options {
  std::string plan;
  std::string params, load, save, saveSharded;
  /// Files, or one pattern with {step}.
  std::vector<std::string> grads;
  std::optional<uint64_t> steps;
  std::string backend = "cpu";
  std::string isa;
  unsigned threads = 0;
  int device = 0;
  /// Of a sharded plan; 0: as many as it is for.
  unsigned ranks = 0;
  std::string comm = "local";
  /// How long a rank waits for the others.
  double deadlineSeconds = 300;
  double gradScale = 1.0;
  std::vector<std::pair<std::string, double>> hyper;
  bool offload = false;
  bool allowMissingGrads = false;
  bool printFingerprints = false;
  bool help = false;

  /// Path of the gradients of step `step`, counted from 1 in this run, of
  /// `rank`; files of a list repeat when there are more steps.
  std::string gradPath(uint64_t step, unsigned rank = 0) const;
  /// Steps to run: --steps, or the number of gradient files, of `rank`.
  uint64_t numSteps(unsigned rank = 0) const;
};

extern const char usage[];

/// Parses `argv`; both `--name=value` and `--name value` are understood.
Status parseOptions(int argc, char **argv, Options &options);

} // namespace msamp::rt

#endif // MSAMP_TOOLS_MSAMP_RUN_OPTIONS_H
