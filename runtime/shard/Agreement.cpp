// See Agreement.h.

#include "shard/Agreement.h"

#include <cstring>
#include <sstream>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace msamp;
using namespace msamp::rt;

namespace {

/// A text of fixed size, cut off where it is longer.
struct Text {
  char data[2048];

  explicit Text(const std::string &text = "") {
    std::memset(data, 0, sizeof(data));
    std::memcpy(data, text.data(), std::min(text.size(), sizeof(data) - 1));
  }
};

/// What a rank tells the others of its step, followed by a RankTensor for each
/// tensor.
struct StepNote {
  double gradScale;
  uint64_t hyperHash;
  uint64_t code; // of what keeps it from the step, or 0
  Text message;
};

/// `own` of every rank.
template <typename Value>
Status gather(Communicator &comm, const Value &own, std::vector<Value> &all) {
  all.resize(comm.size());
  return comm.allGather(&own, sizeof(own), all.data());
}

std::string name(unsigned rank) { return "rank " + std::to_string(rank); }

/// What can differ between plans: what it is of, and what it is.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// All of one tensor that a step depends on.
Facts describeTensor(const Plan &plan, size_t index) {
  const PlanTensor &tensor = plan.tensors[index];
  std::string shape;
  for (int64_t size : tensor.wholeShape) {
    shape += shape.empty() ? "" : ",";
    shape += std::to_string(size);
  }
  const std::string subject = "tensor '" + tensor.name + "'";
  // Another optimizer has other states, in all tensors.
  Facts facts = {{"the optimizer", plan.optimizer},
                 {"tensor " + std::to_string(index), "'" + tensor.name + "'"},
                 {"the shape of " + subject, "[" + shape + "]"},
                 {"the group of " + subject, plan.groups[tensor.group].name}};
  for (size_t role = 0; role < plan.roles.size(); ++role)
    facts.push_back({"the " + plan.roles[role].name + " of " + subject,
                     Plan::describe(plan.storage(tensor.classIndex, role))});
  facts.push_back({"the gradient of " + subject + " on the wire",
                   Plan::describe(plan.wires[tensor.classIndex])});
  return facts;
}

/// What is not of one tensor. The last of it differs for certain.
Facts describeRest(const Plan &plan) {
  return {{"the number of tensors", std::to_string(plan.tensors.size())},
          {"the optimizer", plan.optimizer}, // where there are no tensors
          {"the sharding",
           plan::kShardingNames[static_cast<size_t>(plan.sharding->policy)]},
          {"the reduction of gradients",
           plan::kRankReductionNames[static_cast<size_t>(
               plan.sharding->reduction)]},
          {"the schedule", plan.schedule},
          {"the digest", plan.digest}};
}

/// Facts in a text, a line for the subject of each and one for what it is.
Text toText(const Facts &facts) {
  std::string text;
  for (const auto &[subject, what] : facts)
    text.append(subject).append("\n").append(what).append("\n");
  return Text(text);
}

/// The first fact in which `rank`'s plan differs from rank 0's, as an error.
Status differs(unsigned rank, const std::vector<Text> &texts) {
  std::istringstream first(texts[0].data), other(texts[rank].data);
  std::string subject, expected, otherSubject, found;
  while (std::getline(first, subject) && std::getline(first, expected) &&
         std::getline(other, otherSubject) && std::getline(other, found))
    if (found != expected || otherSubject != subject)
      return invalidArgument(name(rank) +
                             " has another plan than rank 0: " + subject +
                             " is " + found + ", but on rank 0 " + expected);
  return invalidArgument(name(rank) + " has another plan than rank 0");
}

} // namespace

/// Says how plans of different digests differ.
static Status explainDifference(const Plan &plan, Communicator &comm) {
  std::vector<uint64_t> counts;
  MSAMP_RETURN_IF_ERROR(
      gather(comm, static_cast<uint64_t>(plan.tensors.size()), counts));
  size_t common = *std::min_element(counts.begin(), counts.end());
  std::vector<uint64_t> hashes, all(common * comm.size());
  for (size_t tensor = 0; tensor < common; ++tensor) {
    Text text = toText(describeTensor(plan, tensor));
    hashes.push_back(XXH3_64bits(text.data, sizeof(text.data)));
  }
  MSAMP_RETURN_IF_ERROR(
      comm.allGather(hashes.data(), common * sizeof(uint64_t), all.data()));
  std::vector<Text> texts;
  for (size_t tensor = 0; tensor < common; ++tensor)
    for (unsigned rank = 1; rank < comm.size(); ++rank)
      if (all[rank * common + tensor] != all[tensor]) {
        MSAMP_RETURN_IF_ERROR(
            gather(comm, toText(describeTensor(plan, tensor)), texts));
        return differs(rank, texts);
      }
  MSAMP_RETURN_IF_ERROR(gather(comm, toText(describeRest(plan)), texts));
  unsigned rank = 1;
  while (rank + 1 < comm.size() &&
         std::strcmp(texts[rank].data, texts[0].data) == 0)
    ++rank;
  return differs(rank, texts);
}

Status msamp::rt::agreeOnPlan(const Plan &plan, Communicator &comm) {
  std::vector<Text> digests;
  MSAMP_RETURN_IF_ERROR(gather(comm, Text(plan.digest), digests));
  for (const Text &digest : digests)
    if (std::strcmp(digest.data, digests[0].data) != 0)
      return explainDifference(plan, comm);
  return {};
}

Status msamp::rt::agreeOnStep(const Plan &plan, Communicator &comm,
                              const RankStep &own,
                              std::vector<std::vector<float>> &scaleInvs) {
  const size_t tensorBytes = own.tensors.size() * sizeof(RankTensor);
  StepNote note{
      own.gradScale,
      XXH3_64bits(own.hyper.data(), own.hyper.size() * sizeof(double)),
      own.ready.ok() ? 0 : static_cast<uint64_t>(own.ready.code()),
      Text(own.ready.ok() ? "" : own.ready.message())};
  std::vector<std::byte> bytes(sizeof(note) + tensorBytes);
  std::memcpy(bytes.data(), &note, sizeof(note));
  if (tensorBytes != 0)
    std::memcpy(bytes.data() + sizeof(note), own.tensors.data(), tensorBytes);
  std::vector<std::byte> all(bytes.size() * comm.size());
  MSAMP_RETURN_IF_ERROR(comm.allGather(bytes.data(), bytes.size(), all.data()));
  std::vector<StepNote> notes(comm.size());
  std::vector<std::vector<RankTensor>> tensors(comm.size());
  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    const std::byte *theirs = all.data() + rank * bytes.size();
    std::memcpy(&notes[rank], theirs, sizeof(StepNote));
    tensors[rank].resize(own.tensors.size());
    if (tensorBytes != 0)
      std::memcpy(tensors[rank].data(), theirs + sizeof(StepNote), tensorBytes);
  }

  for (unsigned rank = 0; rank < comm.size(); ++rank) {
    if (notes[rank].code && rank == comm.rank())
      return {own.ready.code(), own.ready.message()};
    if (notes[rank].code)
      return {static_cast<StatusCode>(notes[rank].code),
              name(rank) + ": " + notes[rank].message.data};
  }
  for (unsigned rank = 1; rank < comm.size(); ++rank) {
    if (notes[rank].gradScale != notes[0].gradScale)
      return invalidArgument(name(rank) + " has grad_scale " +
                             std::to_string(notes[rank].gradScale) +
                             ", but rank 0 has " +
                             std::to_string(notes[0].gradScale));
    if (notes[rank].hyperHash != notes[0].hyperHash)
      return invalidArgument(name(rank) +
                             " has other hyper-parameters than rank 0");
  }
  for (size_t tensor = 0; tensor < own.tensors.size(); ++tensor) {
    const std::string &tensorName = plan.tensors[tensor].name;
    const RankTensor &expected = tensors[0][tensor];
    for (unsigned rank = 0; rank < comm.size(); ++rank) {
      const RankTensor &theirs = tensors[rank][tensor];
      if (theirs.step != expected.step)
        return invalidArgument("tensor '" + tensorName + "' is at step " +
                               std::to_string(theirs.step) + " on " +
                               name(rank) + ", but at step " +
                               std::to_string(expected.step) + " on rank 0");
      if (theirs.hasGradient != expected.hasGradient)
        return invalidArgument(
            "tensor '" + tensorName + "' has a gradient on " +
            name(theirs.hasGradient ? rank : 0) + ", but none on " +
            name(theirs.hasGradient ? 0 : rank));
      scaleInvs[rank][tensor] = theirs.scaleInv;
    }
  }
  return {};
}
