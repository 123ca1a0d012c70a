// Fuzzes the plan reader: whatever the bytes, it either refuses them or returns
// a plan that a session can be made of and run. Aborts on any broken promise.
//
// An input is read twice: as it is, and with magic, version, size and digest
// made to fit, because a fuzzer never guesses a digest and nothing behind it
// would be reached. Real plans are good seeds. Accepted plans run on the
// reference backend only: the cpu backend would load the input's native code.

#include "core/Plan.h"
#include "core/Session.h"
#include "shard/Sharding.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace msamp;
using namespace msamp::rt;

namespace {

void require(bool promise) {
  if (!promise)
    std::abort();
}

/// Makes the header fit the rest of `bytes`, but for its count of sections.
void sign(std::vector<std::byte> &bytes) {
  plan::PlanHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::memcpy(header.magic, plan::kMagic, sizeof(header.magic));
  header.version = plan::kVersion;
  header.file_size = bytes.size();
  std::memset(header.digest, 0, sizeof(header.digest));
  std::memcpy(bytes.data(), &header, sizeof(header));
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits(bytes.data(), bytes.size()));
  std::memcpy(header.digest, canonical.digest, sizeof(header.digest));
  std::memcpy(bytes.data(), &header, sizeof(header));
}

/// Checks what Plan::parse promises about an accepted plan.
void checkInvariants(const Plan &plan) {
  require(plan.digest.size() == 32);
  require(plan.roles.size() >= 3 && plan.roles.size() <= 64);
  require(plan.storages.size() == plan.classes.size() * plan.roles.size());
  for (const PlanGroup &group : plan.groups)
    require(group.hyper.size() == plan.hypers.size());
  for (const PlanTensor &tensor : plan.tensors) {
    require(tensor.classIndex < plan.classes.size());
    require(tensor.group < plan.groups.size());
    require(plan.findTensor(tensor.name) >= 0);
    require(plan.holds(tensor.classIndex, plan.paramRole(tensor.classIndex)));
    for (const PlanBuffer &buffer : tensor.buffers) {
      require(buffer.role < plan.roles.size());
      if (buffer.kind == PlanBuffer::Kind::Payload)
        require(buffer.byteSize == tensor.numElements * buffer.elementSize &&
                buffer.byteSize / buffer.elementSize == tensor.numElements);
    }
  }
  for (const PlanKernel &kernel : plan.kernels)
    require(kernel.phase == plan::Phase::Scalars ||
            kernel.classIndex < plan.classes.size());
}

/// Two steps on the reference backend, if the tensors are small.
void run(std::shared_ptr<const Plan> plan) {
  // As its last rank; as many as there may be would take long.
  if (plan->sharding && plan->sharding->ranks > 64)
    return;
  if (plan->sharding)
    plan = makeRankPlan(*plan, plan->sharding->ranks - 1, GradientForm::Mean);
  SessionOptions options;
  options.backend = "reference";
  std::unique_ptr<Session> session;
  require(Session::create(plan, options, session).ok());
  constexpr size_t limit = 4096;
  size_t total = 0;
  for (const PlanTensor &tensor : plan->tensors)
    for (const PlanBuffer &buffer : tensor.buffers) {
      if (buffer.byteSize > limit || (total += buffer.byteSize) > limit)
        return;
    }
  // Exactly as long as asked for: a sanitizer sees any access beyond.
  std::vector<std::unique_ptr<std::byte[]>> memory;
  for (const PlanTensor &tensor : plan->tensors)
    for (const PlanBuffer &buffer : tensor.buffers) {
      memory.emplace_back(new std::byte[buffer.byteSize]());
      // Two buffers of one name are legal to refuse.
      (void)session->bind(tensor.name, buffer.key, memory.back().get(),
                          buffer.dtype, buffer.shape, buffer.byteSize);
    }
  for (const PlanTensor &tensor : plan->tensors) {
    std::vector<float> values(tensor.numElements, 0.75f);
    (void)session->initialize(tensor.name, values.data(), values.size());
  }
  for (int step = 0; step < 2; ++step) {
    for (const PlanTensor &tensor : plan->tensors) {
      std::vector<float> values(tensor.numElements, -0.3f);
      (void)session->quantizeGradient(tensor.name, values.data(),
                                      values.size());
    }
    StepReport report;
    Status status = session->run(2.0, report);
    require(status.ok() || !report.applied);
  }
  for (const PlanTensor &tensor : plan->tensors) {
    uint64_t inStep, computed;
    if (session->fingerprint(tensor.name, inStep).ok() &&
        session->computeFingerprint(tensor.name, computed).ok())
      require(inStep == computed);
  }
}

void parse(const std::vector<std::byte> &bytes) {
  std::shared_ptr<const Plan> plan;
  const Status status = Plan::parse("fuzz", bytes.data(), bytes.size(), plan);
  if (status.ok()) {
    require(plan != nullptr);
    checkInvariants(*plan);
    run(plan);
  } else {
    require(plan == nullptr);
    require(status.code() == StatusCode::DataLoss);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const auto *begin = reinterpret_cast<const std::byte *>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  parse(bytes);
  if (size >= sizeof(plan::PlanHeader)) {
    sign(bytes);
    parse(bytes);
  }
  return 0;
}
