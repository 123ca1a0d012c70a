// Look-ups on a loaded plan; PlanReader.cpp fills it.

#include "core/Plan.h"
#include "core/Formats.h"

#include <algorithm>
#include <cmath>

using namespace msamp;
using namespace msamp::rt;

bool PlanHyper::accepts(double candidate) const {
  return std::isfinite(candidate) && candidate >= lower &&
         (candidate < upper || std::isinf(upper));
}

std::string PlanTensor::fileName(const PlanBuffer &buffer) const {
  constexpr std::string_view weight = "weight";
  std::string_view key = buffer.key;
  if (buffer.role == Plan::roleIndex(plan::RoleKind::Weight) &&
      buffer.kind != PlanBuffer::Kind::Step)
    key.remove_prefix(weight.size());
  else
    return name + "." + buffer.key;
  return name + std::string(key);
}

bool PlanBuffer::canBeOffloaded() const {
  return kind == Kind::Payload &&
         role != Plan::roleIndex(plan::RoleKind::Weight) &&
         role != Plan::roleIndex(plan::RoleKind::Grad);
}

const PlanBuffer *PlanTensor::findBuffer(std::string_view key) const {
  for (const PlanBuffer &buffer : buffers)
    if (buffer.key == key)
      return &buffer;
  return nullptr;
}

ptrdiff_t Plan::findTensor(std::string_view name) const {
  auto found = tensorByName.find(name);
  return found == tensorByName.end() ? -1
                                     : static_cast<ptrdiff_t>(found->second);
}

template <typename Element>
static ptrdiff_t findByName(const std::vector<Element> &elements,
                            std::string_view name) {
  for (size_t index = 0; index < elements.size(); ++index)
    if (elements[index].name == name)
      return static_cast<ptrdiff_t>(index);
  return -1;
}

ptrdiff_t Plan::findHyper(std::string_view name) const {
  return findByName(hypers, name);
}

ptrdiff_t Plan::findGroup(std::string_view name) const {
  return findByName(groups, name);
}

std::string Plan::describe(const plan::Storage &storage) {
  std::string text = dtypeName(storage.dtype);
  if (storage.scaling == plan::Scaling::Current)
    text += ", scaled per tensor, current";
  if (storage.scaling == plan::Scaling::Delayed)
    text +=
        ", scaled per tensor, delayed by " + std::to_string(storage.history);
  if (storage.scaling == plan::Scaling::Bounded)
    text += ", scaled per tensor, bounded";
  return text;
}
