// Tests that no damaged plan gets past the reader, and that none makes it
// crash: truncated, with bytes flipped, of another version, and with any word
// of any table replaced behind a digest that fits.
//
// The last is what the digest does not protect from: a plan is small and easily
// edited, so whatever the reader accepts must still be safe to run. Plans are
// those of the directory MSAMP_TEST_PLANS (utils/make-test-plans.sh).

#include "core/Plan.h"
#include "core/Session.h"
#include "shard/Sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace msamp;
using namespace msamp::rt;
using plan::SectionKind;

namespace {

using Bytes = std::vector<std::byte>;

/// Those of large tensors are laid out as others are.
std::vector<std::filesystem::path> findPlans() {
  std::vector<std::filesystem::path> paths;
#ifdef MSAMP_TEST_PLANS
  std::error_code ignored;
  for (auto &entry :
       std::filesystem::recursive_directory_iterator(MSAMP_TEST_PLANS, ignored))
    if (entry.path().extension() == ".msplan" &&
        entry.path().parent_path().filename() != "large")
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
#endif
  return paths;
}

Bytes readBytes(const std::filesystem::path &path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  Bytes bytes(text.size());
  if (!text.empty())
    std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <typename Value> Value get(const Bytes &bytes, size_t offset) {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename Value> void put(Bytes &bytes, size_t offset, Value value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

/// Parses a copy that has no slack, so that a sanitizer sees any overread.
Status parse(const Bytes &bytes, size_t size,
             std::shared_ptr<const Plan> &result) {
  std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size != 0)
    std::memcpy(copy.get(), bytes.data(), size);
  return Plan::parse("plan", copy.get(), size, result);
}

/// Makes the digest of the header fit the bytes.
void signDigest(Bytes &bytes) {
  auto header = get<plan::PlanHeader>(bytes, 0);
  std::memset(header.digest, 0, sizeof(header.digest));
  put(bytes, 0, header);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits(bytes.data(), bytes.size()));
  std::memcpy(header.digest, canonical.digest, sizeof(header.digest));
  put(bytes, 0, header);
}

/// Makes size and digest of the header fit the bytes.
void sign(Bytes &bytes) {
  if (bytes.size() < sizeof(plan::PlanHeader))
    return;
  put(bytes, offsetof(plan::PlanHeader, file_size), uint64_t(bytes.size()));
  signDigest(bytes);
}

/// Whether every instruction takes values that were there before it.
bool isInOrder(const Plan &plan, const PlanProgram &program) {
  size_t known = program.numArguments;
  for (const plan::Instruction &instruction : program.instructions) {
    for (uint32_t operand = 0; operand < instruction.num_operands; ++operand)
      if (plan.programOperands[instruction.first_operand + operand] >= known)
        return false;
    ++known;
  }
  return std::all_of(program.results.begin(), program.results.end(),
                     [&](uint32_t value) { return value < known; });
}

/// Binds memory to all of `session` and runs a step, if that takes little.
void runIfSmall(Session &session, const Plan &plan) {
  constexpr size_t limit = size_t(1) << 16;
  size_t total = 0;
  for (const PlanTensor &tensor : plan.tensors)
    for (const PlanBuffer &buffer : tensor.buffers)
      total = buffer.byteSize > limit ? limit + 1 : total + buffer.byteSize;
  if (total > limit)
    return;
  std::vector<std::unique_ptr<uint64_t[]>> memory;
  for (const PlanTensor &tensor : plan.tensors)
    for (const PlanBuffer &buffer : tensor.buffers) {
      memory.emplace_back(new uint64_t[buffer.byteSize / 8 + 1]());
      // Two buffers of one name are legal to refuse.
      (void)session.bind(tensor.name, buffer.key, memory.back().get(),
                         buffer.dtype, buffer.shape, buffer.byteSize);
    }
  for (const PlanTensor &tensor : plan.tensors) {
    std::vector<float> values(tensor.numElements, 0.5f);
    (void)session.initialize(tensor.name, values.data(), values.size());
    (void)session.quantizeGradient(tensor.name, values.data(), values.size());
  }
  StepReport report;
  (void)session.run(1.0, report);
  for (const PlanTensor &tensor : plan.tensors) {
    uint64_t ignored;
    (void)session.fingerprint(tensor.name, ignored);
  }
}

/// Parses `bytes`; what is accepted must be safe to use.
void parseAndUse(const Bytes &bytes) {
  std::shared_ptr<const Plan> plan;
  Status status = parse(bytes, bytes.size(), plan);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::DataLoss) << status.message();
    EXPECT_EQ(plan, nullptr);
    return;
  }
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(isInOrder(*plan, plan->scalars));
  EXPECT_TRUE(isInOrder(*plan, plan->body));
  if (plan->sharding)
    plan = makeRankPlan(*plan, plan->sharding->ranks - 1, GradientForm::Mean);
  SessionOptions options;
  options.backend = "reference";
  std::unique_ptr<Session> session;
  status = Session::create(plan, options, session);
  ASSERT_TRUE(status.ok()) << status.message();
  runIfSmall(*session, *plan);
}

/// The same, and nothing may be thrown; `what` was done to the plan.
void checkHarmless(const Bytes &bytes, const std::string &what) {
  SCOPED_TRACE(what);
  EXPECT_NO_THROW(parseAndUse(bytes));
}

class PlanReader : public testing::TestWithParam<std::filesystem::path> {
protected:
  void SetUp() override {
    bytes = readBytes(GetParam());
    std::shared_ptr<const Plan> plan;
    Status status = parse(bytes, bytes.size(), plan);
    ASSERT_TRUE(status.ok()) << status.message();
    auto header = get<plan::PlanHeader>(bytes, 0);
    sections.resize(header.section_count);
    for (size_t index = 0; index < sections.size(); ++index)
      sections[index] = get<plan::Section>(bytes, sectionAt(index));
  }

  static size_t sectionAt(size_t index) {
    return sizeof(plan::PlanHeader) + index * sizeof(plan::Section);
  }

  /// Replaces the word at `offset` by each of a set of awkward ones, one at a
  /// time, with a digest that fits.
  void mutateWord(size_t offset) {
    auto old = get<uint32_t>(bytes, offset);
    for (uint32_t value :
         {0u, 1u, 2u, 0x7Fu, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu, 0x7FF00000u,
          old + 1, old - 1, old ^ 0x80000000u,
          static_cast<uint32_t>(bytes.size())}) {
      Bytes changed = bytes;
      put(changed, offset, value);
      sign(changed);
      checkHarmless(changed, "word at " + std::to_string(offset) + " is " +
                                 std::to_string(value) + ", was " +
                                 std::to_string(old));
    }
  }

  /// The section of `kind`, which every plan has.
  const plan::Section &find(SectionKind kind) const {
    return *std::find_if(
        sections.begin(), sections.end(),
        [&](const plan::Section &section) { return section.kind == kind; });
  }

  /// The same as a table.
  template <typename Element>
  std::vector<Element> readTable(SectionKind kind) const {
    const plan::Section &section = find(kind);
    std::vector<Element> table(section.size / sizeof(Element));
    for (size_t index = 0; index < table.size(); ++index)
      table[index] =
          get<Element>(bytes, section.offset + index * sizeof(Element));
    return table;
  }

  /// Expects that a plan with `value` at `offset` is refused, by a message that
  /// has `reason`.
  template <typename Value>
  void expectRefused(size_t offset, Value value, const std::string &reason) {
    Bytes changed = bytes;
    put(changed, offset, value);
    sign(changed);
    std::shared_ptr<const Plan> plan;
    Status status = parse(changed, changed.size(), plan);
    ASSERT_FALSE(status.ok()) << "expected '" << reason << "'";
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    EXPECT_NE(status.message().find(reason), std::string::npos)
        << status.message();
  }

  Bytes bytes;
  std::vector<plan::Section> sections;
};

std::string nameOf(const testing::TestParamInfo<std::filesystem::path> &info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Plans, PlanReader, testing::ValuesIn(findPlans()),
                         nameOf);
// Without plans there is nothing to instantiate.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PlanReader);

TEST(PlanReaderSetup, HasPlans) {
#ifndef MSAMP_TEST_PLANS
  GTEST_SKIP() << "MSAMP_TEST_PLANS is not defined: this build has no compiler "
                  "to make plans with";
#else
  EXPECT_FALSE(findPlans().empty()) << "no .msplan in " MSAMP_TEST_PLANS;
#endif
}

TEST_P(PlanReader, LoadsFromFileAsFromMemory) {
  std::shared_ptr<const Plan> plan, parsed;
  Status status = Plan::load(GetParam().string(), plan);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(parse(bytes, bytes.size(), parsed).ok());
  EXPECT_EQ(plan->digest, parsed->digest);
  EXPECT_EQ(plan->fileSize, bytes.size());
  EXPECT_EQ(plan->tensors.size(), parsed->tensors.size());
  for (const PlanTensor &tensor : plan->tensors) {
    EXPECT_EQ(plan->findTensor(tensor.name), &tensor - plan->tensors.data());
    EXPECT_NE(tensor.findBuffer("weight"), nullptr);
    EXPECT_NE(tensor.findBuffer("grad"), nullptr);
    EXPECT_NE(tensor.findBuffer("step"), nullptr);
    EXPECT_EQ(tensor.findBuffer("nothing"), nullptr);
  }
  EXPECT_EQ(plan->findTensor("no such tensor"), -1);
  EXPECT_EQ(plan->findHyper("no such hyper-parameter"), -1);
  EXPECT_EQ(plan->findGroup("no such group"), -1);
}

TEST(PlanReaderSetup, MissingFileAndDirectoryAreNamed) {
  std::shared_ptr<const Plan> plan;
  Status status = Plan::load("/nonexistent/step.msplan", plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::NotFound);
  EXPECT_NE(status.message().find("/nonexistent/step.msplan"),
            std::string::npos);
  status = Plan::load("/", plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::IoError);
}

TEST_P(PlanReader, EveryTruncationIsDataLoss) {
  auto check = [&](size_t size) {
    std::shared_ptr<const Plan> plan;
    Status status = parse(bytes, size, plan);
    ASSERT_FALSE(status.ok()) << size << " bytes";
    ASSERT_EQ(status.code(), StatusCode::DataLoss) << size << " bytes";
  };
  for (size_t size = 0; size < std::min<size_t>(bytes.size(), 4096); ++size)
    check(size);
  for (size_t step = 0; step < 997; ++step)
    check(bytes.size() * step / 997);
  check(bytes.size() - 1);
}

TEST_P(PlanReader, SignedTruncationIsHarmless) {
  for (size_t step = 0; step < 997; ++step) {
    Bytes part(bytes.begin(), bytes.begin() + bytes.size() * step / 997);
    sign(part);
    checkHarmless(part, std::to_string(part.size()) + " bytes");
  }
}

TEST_P(PlanReader, EveryFlippedByteIsDataLoss) {
  auto check = [&](size_t position) {
    for (unsigned flip : {0x01u, 0x80u, 0xFFu}) {
      Bytes changed = bytes;
      changed[position] ^= static_cast<std::byte>(flip);
      std::shared_ptr<const Plan> plan;
      Status status = parse(changed, changed.size(), plan);
      ASSERT_FALSE(status.ok()) << "byte " << position << " ^ " << flip;
      ASSERT_EQ(status.code(), StatusCode::DataLoss) << "byte " << position;
    }
  };
  for (size_t position = 0; position < 512; ++position)
    check(position);
  for (size_t step = 0; step < 499; ++step)
    check(bytes.size() * step / 499);
  check(bytes.size() - 1);
}

TEST_P(PlanReader, AppendedBytesAreDataLoss) {
  Bytes longer = bytes;
  longer.push_back(std::byte(0));
  std::shared_ptr<const Plan> plan;
  Status status = parse(longer, longer.size(), plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::DataLoss);
}

TEST_P(PlanReader, AnotherSizeThanWrittenIsNamed) {
  for (uint64_t size : {uint64_t(0), uint64_t(bytes.size() - 1),
                        uint64_t(bytes.size() + 8), ~uint64_t(0)}) {
    Bytes changed = bytes;
    put(changed, offsetof(plan::PlanHeader, file_size), size);
    signDigest(changed);
    std::shared_ptr<const Plan> plan;
    Status status = parse(changed, changed.size(), plan);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    EXPECT_NE(status.message().find(std::to_string(size)), std::string::npos);
  }
}

TEST_P(PlanReader, AnotherVersionIsNamedWithOurs) {
  for (uint32_t version : {0u, plan::kVersion + 41, 0xFFFFFFFFu}) {
    Bytes changed = bytes;
    put(changed, offsetof(plan::PlanHeader, version), version);
    sign(changed);
    std::shared_ptr<const Plan> plan;
    Status status = parse(changed, changed.size(), plan);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    const std::string &message = status.message();
    EXPECT_NE(message.find("version " + std::to_string(version)),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("version " + std::to_string(plan::kVersion)),
              std::string::npos)
        << message;
  }
}

TEST_P(PlanReader, AnotherMagicIsNoPlan) {
  Bytes changed = bytes;
  changed[0] = std::byte('X');
  sign(changed);
  std::shared_ptr<const Plan> plan;
  Status status = parse(changed, changed.size(), plan);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("not a step plan"), std::string::npos);
}

//===----------------------------------------------------------------------===//
// Behind a digest that fits
//===----------------------------------------------------------------------===//

TEST_P(PlanReader, SigningChangesNothing) {
  // The tests below mean nothing unless this digest is the compiler's.
  Bytes again = bytes;
  sign(again);
  EXPECT_EQ(again, bytes);
}

TEST_P(PlanReader, AnyHeaderOrSectionWordIsHarmless) {
  size_t end = sectionAt(sections.size());
  for (size_t offset = 8; offset < end; offset += 4)
    if (offset < offsetof(plan::PlanHeader, digest) ||
        offset >= sizeof(plan::PlanHeader))
      mutateWord(offset);
}

TEST_P(PlanReader, AnyTableWordIsHarmless) {
  for (const plan::Section &section : sections) {
    if (section.kind == SectionKind::NativeObject ||
        section.kind == SectionKind::Mlir)
      continue;
    SCOPED_TRACE("section " +
                 std::to_string(static_cast<uint32_t>(section.kind)));
    // Every word of a small table; of a large one 40, at an odd step so that
    // all fields come up.
    size_t words = section.size / 4, step = words / 40 + 1;
    step += step % 2 == 0;
    for (size_t word = 0; word < words; word += step)
      mutateWord(section.offset + 4 * word);
  }
}

TEST_P(PlanReader, EverySectionIsMissedByItsName) {
  for (size_t index = 0; index < sections.size(); ++index) {
    Bytes changed = bytes;
    put(changed, sectionAt(index), uint32_t(9999));
    sign(changed);
    std::shared_ptr<const Plan> plan;
    Status status = parse(changed, changed.size(), plan);
    ASSERT_FALSE(status.ok())
        << "without section " << static_cast<uint32_t>(sections[index].kind);
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    EXPECT_NE(status.message().find("has no"), std::string::npos)
        << status.message();
  }
}

TEST_P(PlanReader, AnyTableLengthIsHarmless) {
  for (size_t index = 0; index < sections.size(); ++index) {
    uint64_t size = sections[index].size;
    for (uint64_t other : {uint64_t(0), uint64_t(1), size / 2, size - 1,
                           size - 4, size - 8, size + 8, size * 2, ~uint64_t(0),
                           uint64_t(1) << 63, uint64_t(bytes.size())}) {
      Bytes changed = bytes;
      put(changed, sectionAt(index) + offsetof(plan::Section, size), other);
      sign(changed);
      checkHarmless(changed, "section " + std::to_string(index) + " of " +
                                 std::to_string(other) + " bytes");
    }
  }
}

TEST_P(PlanReader, UnknownScheduleIsNamed) {
  const plan::Section &summary = find(SectionKind::Summary);
  auto producer = get<plan::Summary>(bytes, summary.offset).producer;
  expectRefused(summary.offset + offsetof(plan::Summary, schedule), producer,
                "has schedule 'msamp");
}

// A bound is one on what the optimizer computes: a weight, its master and a
// gradient have none.
TEST_P(PlanReader, BoundedScalingIsForStates) {
  auto roles = readTable<plan::Role>(SectionKind::Roles);
  auto storages = readTable<plan::Storage>(SectionKind::Storages);
  size_t offset = find(SectionKind::Storages).offset;
  for (size_t index = 0; index < storages.size(); ++index) {
    const plan::Storage &storage = storages[index];
    const plan::Role &role = roles[index % roles.size()];
    if (storage.scaling == plan::Scaling::None)
      continue;
    plan::Storage bounded = storage;
    bounded.scaling = plan::Scaling::Bounded;
    bounded.history = 0;
    size_t place = offset + index * sizeof(plan::Storage);
    if (role.kind != plan::RoleKind::State) {
      expectRefused(place, bounded, "has no bound to scale by");
      continue;
    }
    bounded.history = 4;
    expectRefused(place, bounded, "has an impossible format");
    bounded.history = 0;
    bounded.scaling = static_cast<plan::Scaling>(4);
    expectRefused(place, bounded, "has an impossible format");
  }
}

//===----------------------------------------------------------------------===//
// Device images
//===----------------------------------------------------------------------===//

TEST_P(PlanReader, MalformedImageIsRefused) {
  auto images = readTable<plan::DeviceImage>(SectionKind::DeviceImages);
  size_t offset = find(SectionKind::DeviceImages).offset;
  uint64_t codeSize = find(SectionKind::DeviceCode).size;
  if (images.empty())
    GTEST_SKIP() << "the plan has no code for devices";
  for (size_t index = 0; index < images.size(); ++index) {
    const plan::DeviceImage &image = images[index];
    SCOPED_TRACE("image " + std::to_string(index));
    auto refuse = [&](const char *what, auto change) {
      SCOPED_TRACE(what);
      plan::DeviceImage changed = image;
      change(changed);
      expectRefused(offset + index * sizeof(image), changed, "device image");
    };
    refuse("another kind", [](plan::DeviceImage &changed) {
      changed.kind = static_cast<plan::ImageKind>(2);
    });
    refuse("half exact",
           [](plan::DeviceImage &changed) { changed.is_exact = 2; });
    refuse("empty", [](plan::DeviceImage &changed) { changed.size = 0; });
    for (uint64_t begin : {codeSize, codeSize + 1, ~uint64_t(0)})
      refuse("begins outside",
             [&](plan::DeviceImage &changed) { changed.offset = begin; });
    for (uint64_t size : {codeSize - image.offset + 1, codeSize + 1,
                          ~uint64_t(0), ~uint64_t(0) - image.offset + 2})
      refuse("ends outside",
             [&](plan::DeviceImage &changed) { changed.size = size; });
    for (uint32_t threads : {0u, 1u, 33u, 1056u, 0x7FFFFFE0u, 0xFFFFFFFFu})
      refuse("threads",
             [&](plan::DeviceImage &changed) { changed.threads = threads; });
    for (uint32_t blocks : {0u, 33u, 0xFFFFFFFFu})
      refuse("blocks", [&](plan::DeviceImage &changed) {
        changed.blocks_per_sm = blocks;
      });
    for (uint32_t access : {0u, 1u, 2u, 12u, 512u, 0x80000000u})
      refuse("bytes of an access", [&](plan::DeviceImage &changed) {
        changed.access_bytes = access;
      });
    for (uint32_t chunk : {0u, 16u, 48u, 1u << 25, 0xFFFFFFFFu})
      refuse("elements of a chunk", [&](plan::DeviceImage &changed) {
        changed.chunk_elements = chunk;
      });
    for (uint32_t shared : {(1u << 20) + 1, 0xFFFFFFFFu})
      refuse("shared memory", [&](plan::DeviceImage &changed) {
        changed.shared_bytes = shared;
      });
  }
}

TEST_P(PlanReader, ArchitectureOutsideOfTheStringsIsRefused) {
  if (find(SectionKind::DeviceImages).size == 0)
    GTEST_SKIP() << "the plan has no code for devices";
  expectRefused(find(SectionKind::DeviceImages).offset +
                    offsetof(plan::DeviceImage, arch),
                plan::StringRef{0xFFFFFFFF, 1}, "outside of its strings");
}

// The driver reads PTX up to its zero byte.
TEST_P(PlanReader, PtxWithoutItsZeroByteIsRefused) {
  auto images = readTable<plan::DeviceImage>(SectionKind::DeviceImages);
  const plan::Section &code = find(SectionKind::DeviceCode);
  size_t checked = 0;
  for (size_t index = 0; index < images.size(); ++index) {
    if (images[index].kind != plan::ImageKind::Ptx)
      continue;
    ++checked;
    expectRefused(code.offset + images[index].offset + images[index].size,
                  char('x'), "device image");
    // Nor may the code end before it.
    plan::DeviceImage longer = images[index];
    longer.size = code.size - longer.offset;
    expectRefused(find(SectionKind::DeviceImages).offset +
                      index * sizeof(longer),
                  longer, "device image");
  }
  if (!checked)
    GTEST_SKIP() << "the plan has no PTX";
}

TEST_P(PlanReader, MalformedShardingIsRefused) {
  size_t offset = find(SectionKind::Shardings).offset;
  if (find(SectionKind::Shardings).size == 0)
    GTEST_SKIP() << "the plan is for one process";
  for (uint32_t policy : {plan::kLastShardingPolicy + 1, 0xFFFFFFFFu})
    expectRefused(offset + offsetof(plan::Sharding, policy), policy,
                  "does not know");
  for (uint32_t reduction : {plan::kLastRankReduction + 1, 0xFFFFFFFFu})
    expectRefused(offset + offsetof(plan::Sharding, reduction), reduction,
                  "has a reduction that this runtime does not know");
  for (uint32_t ranks : {0u, 65537u, 0xFFFFFFFFu})
    expectRefused(offset + offsetof(plan::Sharding, ranks), ranks,
                  "expected 1 to 65536");
  // A gradient cannot be absent, and what travels has no history.
  size_t wires = find(SectionKind::Wires).offset;
  expectRefused(wires + offsetof(plan::Storage, dtype), plan::DType::None,
                "role 'grad' has an impossible format");
  expectRefused(wires + offsetof(plan::Storage, scaling),
                plan::Scaling::Bounded, "");
  // Means and sums are f32.
  size_t grad = Plan::roleIndex(plan::RoleKind::Grad) * sizeof(plan::Storage);
  expectRefused(find(SectionKind::Storages).offset + grad +
                    offsetof(plan::Storage, dtype),
                plan::DType::BF16, "a reduced gradient is not f32");
}

TEST_P(PlanReader, InspectKernelsAreForDevices) {
  const plan::Section &kernels = find(SectionKind::Kernels);
  ASSERT_GE(kernels.size, sizeof(plan::Kernel));
  expectRefused(kernels.offset + offsetof(plan::Kernel, phase),
                plan::Phase::Inspect, "is malformed");
}

/// Kernels are looked up, never called, when a session is made.
TEST_P(PlanReader, AnyKernelTableMakesNoCpuSessionCrash) {
  auto kernels =
      std::find_if(sections.begin(), sections.end(), [](auto &section) {
        return section.kind == SectionKind::Kernels;
      });
  ASSERT_NE(kernels, sections.end());
  ASSERT_GE(kernels->size, sizeof(plan::Kernel));
  for (size_t word = 0; word < sizeof(plan::Kernel) / 4; ++word)
    for (uint32_t value : {0u, 1u, 2u, 3u, 0xFFFFFFFFu}) {
      Bytes changed = bytes;
      put(changed, kernels->offset + 4 * word, value);
      sign(changed);
      std::shared_ptr<const Plan> plan;
      if (!parse(changed, changed.size(), plan).ok())
        continue;
      SessionOptions options;
      options.threads = 1;
      std::unique_ptr<Session> session;
      Status status = Session::create(plan, options, session);
      EXPECT_EQ(status.ok(), session != nullptr);
    }
}

} // namespace
