// See Fingerprint.h and docs/Numerics.md.

#include "core/Fingerprint.h"
#include "core/Formats.h"

#include <algorithm>

using namespace msamp;
using namespace msamp::rt;

namespace {
/// Where a role's payload lies in the element's 32-bit words.
struct Placement {
  size_t role;
  plan::DType dtype;
  uint32_t word;
  uint32_t shift;
};
} // namespace

/// Lays the stored roles of a class end to end, largest first.
static std::vector<Placement> placePayloads(const Plan &plan,
                                            size_t classIndex) {
  std::vector<Placement> placements;
  for (size_t role = 0; role < plan.roles.size(); ++role) {
    plan::DType dtype = plan.storage(classIndex, role).dtype;
    if (plan.roles[role].kind != plan::RoleKind::Grad &&
        dtype != plan::DType::None)
      placements.push_back({role, dtype, 0, 0});
  }
  std::stable_sort(placements.begin(), placements.end(),
                   [](const Placement &left, const Placement &right) {
                     return dtypeSize(left.dtype) > dtypeSize(right.dtype);
                   });
  uint32_t bit = 0;
  for (Placement &placement : placements) {
    // Sizes fall, so a payload never straddles two words.
    placement.word = bit / 32;
    placement.shift = bit % 32;
    bit += static_cast<uint32_t>(8 * dtypeSize(placement.dtype));
  }
  return placements;
}

uint64_t msamp::rt::hashPayloads(const Plan &plan, size_t classIndex,
                                 void *const *operands, uint64_t index,
                                 uint64_t count) {
  std::vector<Placement> placements = placePayloads(plan, classIndex);
  if (placements.empty())
    return 0;
  std::vector<uint32_t> words((placements.back().word + 2) / 2 * 2);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::fill(words.begin(), words.end(), 0);
    for (const Placement &placement : placements)
      words[placement.word] |=
          loadCode(placement.dtype, operands[placement.role], i)
          << placement.shift;
    uint32_t low = static_cast<uint32_t>(index + i);
    uint32_t high = static_cast<uint32_t>((index + i) >> 32);
    for (uint32_t pair = 0; pair < words.size() / 2; ++pair) {
      uint32_t u = low * plan::kHashIndexU + pair * plan::kHashPairU;
      uint32_t v = low * plan::kHashIndexV + high * plan::kHashHighV +
                   pair * plan::kHashPairV + 1;
      sum += static_cast<uint64_t>(words[2 * pair] + u) *
             static_cast<uint64_t>(words[2 * pair + 1] + v);
    }
  }
  return sum;
}
