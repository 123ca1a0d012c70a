// See StateStore.h.

#include "state/StateStore.h"
#include "core/Formats.h"
#include "state/FileTensors.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

using namespace msamp;
using namespace msamp::rt;
using Json = nlohmann::ordered_json;

static constexpr size_t gradRole = Plan::roleIndex(plan::RoleKind::Grad);

static std::string fingerprintText(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(value));
  return text;
}

Status StateStore::bind(Session &session, size_t tensor, size_t buffer,
                        void *data) {
  const PlanTensor &entry = plan->tensors[tensor];
  const PlanBuffer &info = entry.buffers[buffer];
  return session.bind(entry.name, info.key, data, info.dtype, info.shape,
                      info.byteSize);
}

/// Bytes to leave free before a buffer. A rank's part of a tensor begins in
/// each buffer as far from an aligned address as it does in the whole, which on
/// a device lies in memory that ranks share: then one part of it can be aligned
/// in all of them.
static size_t bytesBefore(const PlanTensor &tensor, const PlanBuffer &buffer,
                          const Memory &memory) {
  constexpr size_t alignment = 64;
  if (memory.isHost() || buffer.kind != PlanBuffer::Kind::Payload ||
      buffer.byteSize == 0)
    return 0;
  return tensor.first * buffer.elementSize % alignment;
}

Status StateStore::allocate(Session &session, bool offload,
                            const Provide &provide) {
  buffers.clear();
  buffers.resize(plan->tensors.size());
  Memory &memory = session.memory();
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    for (size_t buffer = 0; buffer < entry.buffers.size(); ++buffer) {
      const PlanBuffer &info = entry.buffers[buffer];
      buffers[tensor].emplace_back(nullptr, Release{nullptr, 0});
      if (!info.isRequired())
        continue;
      void *data = provide ? provide(tensor, info) : nullptr;
      if (data) {
        buffers[tensor].back() = Buffer(data, Release{nullptr, 0});
        MSAMP_RETURN_IF_ERROR(bind(session, tensor, buffer, data));
        continue;
      }
      const size_t before = bytesBefore(entry, info, memory);
      const size_t size = before + info.byteSize;
      Status status = offload && info.canBeOffloaded()
                          ? memory.allocateOffloaded(size, data)
                          : memory.allocate(size, data);
      MSAMP_RETURN_IF_ERROR(
          std::move(status).withContext("'" + entry.fileName(info) + "'"));
      data = static_cast<std::byte *>(data) + before;
      buffers[tensor].back() = Buffer(data, Release{&memory, before});
      MSAMP_RETURN_IF_ERROR(bind(session, tensor, buffer, data));
    }
  }
  return {};
}

Status StateStore::initialize(Session &session, const SafetensorsFile &params) {
  std::set<std::string> names;
  std::vector<float> copy;
  for (const PlanTensor &tensor : plan->tensors) {
    names.insert(tensor.name);
    const SafetensorsView *view = params.find(tensor.name);
    if (!view)
      return missing(params, tensor.name);
    bool isHalf = view->dtype == "F16" || view->dtype == "BF16";
    MSAMP_RETURN_IF_ERROR(checkView(params, *view, isHalf ? view->dtype : "F32",
                                    tensor.wholeShape));
    MSAMP_RETURN_IF_ERROR(session.initialize(
        tensor.name, toFloats(*view, copy) + tensor.first, tensor.numElements));
  }
  return checkNoOthers(params, names);
}

void StateStore::noteHyperChanges(const Session &session,
                                  const std::string &saved,
                                  std::vector<std::string> &notes) const {
  Json values = Json::parse(saved, nullptr, false);
  for (size_t group = 0; group < plan->groups.size(); ++group)
    for (size_t index = 0; index < plan->hypers.size(); ++index) {
      const std::string &groupName = plan->groups[group].name;
      const std::string &name = plan->hypers[index].name;
      Json *entry = nullptr;
      if (values.is_object() && values.contains(groupName) &&
          values[groupName].is_object() && values[groupName].contains(name))
        entry = &values[groupName][name];
      double now = session.hyper(group, index);
      if (entry && entry->is_number() && entry->get<double>() != now)
        notes.push_back("'" + name + "' of group '" + groupName + "' was " +
                        entry->dump() + " when the state was saved and is " +
                        Json(now).dump() + " now");
    }
}

Status StateStore::load(Session &session, const StateFile &file,
                        std::vector<std::string> &notes) {
  std::string optimizer = file.metadata("msamp.optimizer");
  if (optimizer.empty())
    return invalidArgument(
        file.path() + " holds no saved state; start from it with --params");
  if (optimizer != plan->optimizer)
    return invalidArgument(file.path() + " was saved by optimizer '" +
                           optimizer + "', but the plan has '" +
                           plan->optimizer + "'");
  bool isHost = session.memory().isHost();
  std::vector<std::byte> copy;
  std::set<std::string> names;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    for (size_t buffer = 0; buffer < entry.buffers.size(); ++buffer) {
      const PlanBuffer &info = entry.buffers[buffer];
      if (info.role == gradRole)
        continue;
      names.insert(entry.fileName(info));
      bool isPayload = info.kind == PlanBuffer::Kind::Payload;
      void *own = buffers[tensor][buffer].get();
      if (!isHost)
        copy.resize(info.byteSize);
      MSAMP_RETURN_IF_ERROR(file.read(
          entry.fileName(info), info.dtype,
          isPayload ? entry.wholeShape : info.shape, info.elementSize,
          isPayload ? entry.first : 0, info.byteSize / info.elementSize,
          isHost ? own : copy.data()));
      if (!isHost)
        MSAMP_RETURN_IF_ERROR(
            session.memory().copyFromHost(own, copy.data(), info.byteSize));
      // Binding anew tells the session that the contents have changed.
      MSAMP_RETURN_IF_ERROR(bind(session, tensor, buffer, own));
    }
  }
  MSAMP_RETURN_IF_ERROR(file.checkNoOthers(names));

  noteHyperChanges(session, file.metadata("msamp.hyper"), notes);
  Json fingerprints =
      Json::parse(file.metadata("msamp.fingerprints"), nullptr, false);
  if (!fingerprints.is_object())
    return dataLoss(file.path() + " has no fingerprints");
  for (const PlanTensor &tensor : plan->tensors) {
    auto saved = fingerprints.find(tensor.name);
    if (saved == fingerprints.end() || !saved->is_string())
      return dataLoss(file.path() + " has no fingerprint of tensor '" +
                      tensor.name + "'");
    uint64_t found;
    MSAMP_RETURN_IF_ERROR(session.computeFingerprint(tensor.name, found));
    if (fingerprintText(found) != saved->get<std::string>())
      return dataLoss("tensor '" + tensor.name + "' in " + file.path() +
                      " has fingerprint " + fingerprintText(found) +
                      ", but was saved with " + saved->get<std::string>());
  }
  return {};
}

Status StateStore::setGradients(Session &session, const SafetensorsFile &file,
                                bool allowMissing) {
  std::set<std::string> names;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    names.insert(entry.name);
    const SafetensorsView *view = file.find(entry.name);
    if (view) {
      if (view->dtype != "F32" &&
          plan->storage(entry.classIndex, gradRole).scaling !=
              plan::Scaling::None)
        names.insert(entry.name + ".scale_inv");
      MSAMP_RETURN_IF_ERROR(setGradient(session, tensor, file, *view));
      continue;
    }
    if (!allowMissing)
      return notFound("gradient of tensor '" + entry.name +
                      "' is missing from " + file.path());
    size_t buffer = entry.findBuffer("grad") - entry.buffers.data();
    MSAMP_RETURN_IF_ERROR(bind(session, tensor, buffer, nullptr));
  }
  return checkNoOthers(file, names);
}

Status StateStore::setGradient(Session &session, size_t tensor,
                               const SafetensorsFile &file,
                               const SafetensorsView &view) {
  const PlanTensor &entry = plan->tensors[tensor];
  size_t buffer = entry.findBuffer("grad") - entry.buffers.data();
  const PlanBuffer &info = entry.buffers[buffer];
  void *own = buffers[tensor][buffer].get();
  const plan::Storage &storage = plan->storage(entry.classIndex, gradRole);
  if (view.dtype == "F32" && info.dtype != "F32") {
    MSAMP_RETURN_IF_ERROR(checkView(file, view, "F32", info.shape));
    MSAMP_RETURN_IF_ERROR(bind(session, tensor, buffer, own));
    std::vector<float> copy;
    return session.quantizeGradient(entry.name, toFloats(view, copy),
                                    entry.numElements);
  }
  MSAMP_RETURN_IF_ERROR(checkView(file, view, info.dtype, info.shape));
  if (storage.scaling != plan::Scaling::None) {
    const SafetensorsView *scale = file.find(entry.name + ".scale_inv");
    if (!scale)
      return missing(file, entry.name + ".scale_inv");
    MSAMP_RETURN_IF_ERROR(checkView(file, *scale, "F32", {}));
    MSAMP_RETURN_IF_ERROR(session.memory().copyFromHost(
        buffers[tensor][buffer + 1].get(), scale->data, sizeof(float)));
  }
  // In place where the file aligns it: a step only reads gradients.
  if (session.memory().isHost() &&
      reinterpret_cast<uintptr_t>(view.data) % info.elementSize == 0)
    return bind(session, tensor, buffer, const_cast<std::byte *>(view.data));
  MSAMP_RETURN_IF_ERROR(
      session.memory().copyFromHost(own, view.data, info.byteSize));
  return bind(session, tensor, buffer, own);
}

Status StateStore::save(Session &session, const std::string &path,
                        const Gather &gather) {
  std::map<std::string, std::string> metadata;
  MSAMP_RETURN_IF_ERROR(describe(session, metadata));
  std::vector<SafetensorsEntry> entries;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    for (size_t buffer = 0; buffer < entry.buffers.size(); ++buffer) {
      const PlanBuffer &info = entry.buffers[buffer];
      if (info.role == gradRole)
        continue;
      const void *data = buffers[tensor][buffer].get();
      MSAMP_RETURN_IF_ERROR(bringToHost(session, data, info.byteSize, copies));
      bool isPayload = info.kind == PlanBuffer::Kind::Payload;
      size_t size =
          isPayload ? entry.wholeElements * info.elementSize : info.byteSize;
      if (isPayload && gather) {
        std::unique_ptr<std::byte[]> whole;
        MSAMP_RETURN_IF_ERROR(gather(tensor, info, data, whole));
        data = whole.get();
        copies.push_back(std::move(whole));
      }
      entries.push_back({entry.fileName(info), info.dtype,
                         isPayload ? entry.wholeShape : info.shape, data,
                         size});
    }
  }
  if (path.empty())
    return {};
  return writeSafetensors(path, std::move(entries), metadata);
}

Status StateStore::describe(Session &session,
                            std::map<std::string, std::string> &metadata) {
  if (session.poisoned())
    return {StatusCode::Poisoned,
            "a step failed half way; its state is not worth saving"};
  Json fingerprints = Json::object(), formats = Json::object(),
       hyper = Json::object();
  for (const PlanTensor &tensor : plan->tensors) {
    uint64_t value;
    MSAMP_RETURN_IF_ERROR(session.fingerprint(tensor.name, value));
    fingerprints[tensor.name] = fingerprintText(value);
  }
  for (size_t index = 0; index < plan->classes.size(); ++index)
    for (size_t role = 0; role < plan->roles.size(); ++role)
      if (plan->holds(index, role))
        formats[plan->classes[index]][plan->roles[role].name] = Plan::describe(
            role == gradRole && plan->sharding ? plan->wires[index]
                                               : plan->storage(index, role));
  for (size_t group = 0; group < plan->groups.size(); ++group)
    for (size_t index = 0; index < plan->hypers.size(); ++index)
      hyper[plan->groups[group].name][plan->hypers[index].name] =
          session.hyper(group, index);
  metadata = {{"msamp.optimizer", plan->optimizer},
              {"msamp.formats", formats.dump()},
              {"msamp.hyper", hyper.dump()},
              {"msamp.fingerprints", fingerprints.dump()}};
  return {};
}

Status
StateStore::bringToHost(Session &session, const void *&data, size_t size,
                        std::vector<std::unique_ptr<std::byte[]>> &copies) {
  if (session.memory().isHost())
    return {};
  copies.push_back(std::make_unique<std::byte[]>(size));
  MSAMP_RETURN_IF_ERROR(
      session.memory().copyToHost(copies.back().get(), data, size));
  data = copies.back().get();
  return {};
}

Status StateStore::savePart(Session &session, const std::string &path) const {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    for (size_t buffer = 0; buffer < entry.buffers.size(); ++buffer) {
      const PlanBuffer &info = entry.buffers[buffer];
      if (info.role == gradRole || info.kind != PlanBuffer::Kind::Payload ||
          entry.numElements == 0)
        continue;
      const void *data = buffers[tensor][buffer].get();
      MSAMP_RETURN_IF_ERROR(bringToHost(session, data, info.byteSize, copies));
      entries.push_back({entry.fileName(info),
                         info.dtype,
                         {static_cast<int64_t>(entry.numElements)},
                         data,
                         info.byteSize});
    }
  }
  return writeSafetensors(path, std::move(entries), {});
}

Status StateStore::saveShared(
    Session &session, const std::string &path,
    const std::map<std::string, std::string> &metadata) const {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  for (size_t tensor = 0; tensor < plan->tensors.size(); ++tensor) {
    const PlanTensor &entry = plan->tensors[tensor];
    for (size_t buffer = 0; buffer < entry.buffers.size(); ++buffer) {
      const PlanBuffer &info = entry.buffers[buffer];
      if (info.role == gradRole || info.kind == PlanBuffer::Kind::Payload)
        continue;
      const void *data = buffers[tensor][buffer].get();
      MSAMP_RETURN_IF_ERROR(bringToHost(session, data, info.byteSize, copies));
      entries.push_back(
          {entry.fileName(info), info.dtype, info.shape, data, info.byteSize});
    }
  }
  return writeSafetensors(path, std::move(entries), metadata);
}
