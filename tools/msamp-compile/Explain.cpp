// See Explain.h.

#include "Explain.h"

#include "core/Formats.h"
#include "msamp/Dialect/MSAMP/Transforms/CostModel.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace mlir::msamp;
using llvm::formatv;
namespace plan = ::msamp::plan;
using ::msamp::rt::Plan;
using ::msamp::rt::PlanImage;
using ::msamp::rt::PlanTensor;
using plan::RoleKind;

// A copy with a step's streams, by benchmarks/steps/CopyPattern.cu; elsewhere
// 87 % of the maker's figure, which is what that is on an H200.
static const Chip kChips[] = {{"h200", 90, cost::kMemory, true},
                              {"h100", 90, 0.87 * 3350, false},
                              {"a100", 80, 0.87 * 2039, false},
                              {"b200", 100, 0.87 * 8000, false}};

const Chip *mlir::msamp::findChip(const std::string &name) {
  const Chip *found = llvm::find_if(
      kChips, [&](const Chip &chip) { return chip.name == name; });
  return found == std::end(kChips) ? nullptr : found;
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

bool Explanation::isWritten(size_t role) const {
  return plan.roles[role].kind != RoleKind::Grad;
}

bool Explanation::isRead(size_t classIndex, size_t role) const {
  return plan.roles[role].kind != RoleKind::Weight ||
         plan.paramRole(classIndex) == role;
}

const plan::Storage &Explanation::storageOf(size_t classIndex,
                                            size_t role) const {
  return plan.sharding && plan.roles[role].kind == RoleKind::Grad
             ? plan.wires[classIndex]
             : plan.storage(classIndex, role);
}

size_t Explanation::sizeOf(size_t classIndex, size_t role) const {
  return plan.holds(classIndex, role)
             ? ::msamp::rt::dtypeSize(storageOf(classIndex, role).dtype)
             : 0;
}

bool Explanation::needsReduce(size_t classIndex) const {
  return plan.hasScales(classIndex, plan::Scaling::Current);
}

Explanation::Cost Explanation::costOf(size_t classIndex) const {
  Cost cost;
  for (size_t role = 0; role < plan.roles.size(); ++role) {
    size_t size = sizeOf(classIndex, role);
    cost.kept += size;
    cost.storeRead += isRead(classIndex, role) ? size : 0;
    cost.storeWritten += isWritten(role) ? size : 0;
  }
  cost.reduceRead = needsReduce(classIndex) ? cost.storeRead : 0;
  return cost;
}

uint64_t Explanation::elementsOf(size_t classIndex) const {
  uint64_t elements = 0;
  for (const PlanTensor &tensor : plan.tensors)
    if (tensor.classIndex == classIndex)
      elements += tensor.numElements;
  return elements;
}

double Explanation::bytesOfStep() const {
  double bytes = 0;
  for (size_t index = 0; index < plan.classes.size(); ++index)
    bytes += static_cast<double>(elementsOf(index)) *
             static_cast<double>(costOf(index).total());
  return bytes;
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

// Within a host, links as CostModel.h has them. Between hosts a network card of
// 400 Gbit/s for each GPU is assumed, of which four fifths are reached, and a
// message that takes 3 us beside its bytes, one to each other rank and
// exchange.
static constexpr uint32_t kRanksOfHost = 8;
static constexpr double kNetwork = 0.8 * 50; // GB/s
static constexpr double kMessage = 0.003;    // ms

/// Within a host ranks are fused: links and memory work at once, in each sweep.
/// Beyond, gradients arrive before the update begins, and weights leave after.
Explanation::RankCost Explanation::costOfRank(uint32_t ranks) const {
  const double all = ranks, others = ranks - 1;
  const bool isSplit = plan.sharding->policy != plan::ShardingPolicy::None;
  double gradients = 0, weights = 0, reduce = 0, store = 0;
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    const auto whole = static_cast<double>(elementsOf(index));
    const double own = isSplit ? whole / all : whole;
    const auto wire =
        static_cast<double>(sizeOf(index, Plan::roleIndex(RoleKind::Grad)));
    const auto weight =
        static_cast<double>(sizeOf(index, Plan::roleIndex(RoleKind::Weight)));
    Cost cost = costOf(index);
    gradients += wire * (isSplit ? whole * others / all : whole * others);
    weights += isSplit ? weight * whole * others / all : 0;
    // A rank's memory also serves the others' reads, and takes their weights.
    store += own * static_cast<double>(cost.storeRead + cost.storeWritten) +
             (whole - own) * (wire + weight);
    // The first look leaves a copy of what has come from others.
    if (cost.reduceRead)
      reduce +=
          own * static_cast<double>(cost.reduceRead) + 2 * own * wire * others;
  }
  RankCost result{gradients + weights, reduce + store, 0};
  constexpr auto ms = cost::milliseconds;
  const double memory = ms(reduce, chip.bandwidth) + ms(store, chip.bandwidth);
  if (ranks <= kRanksOfHost) {
    result.ms = reduce > 0 ? std::max(ms(reduce, chip.bandwidth),
                                      ms(gradients, cost::kFusedLink)) +
                                 std::max(ms(store, chip.bandwidth),
                                          ms(weights, cost::kFusedLink))
                           : std::max(ms(store, chip.bandwidth),
                                      ms(result.sent, cost::kFusedLink));
    return result;
  }
  const double far = 1 - (kRanksOfHost - 1.0) / others;
  result.ms = memory +
              std::max(ms(result.sent * (1 - far), cost::kExchangeLink),
                       ms(result.sent * far, kNetwork)) +
              2 * kMessage * others;
  return result;
}

std::string Explanation::getScaling() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  const plan::Sharding &sharding = *plan.sharding;
  out << formatv(
      "\nsharded {0} over {1} ranks; on {2}, {3} to a host, a rank of a group "
      "this large:\n  {4,8} {5,10} {6,12} {7,10}\n",
      plan::kShardingNames[static_cast<uint32_t>(sharding.policy)],
      sharding.ranks, chip.name, kRanksOfHost, "ranks", "sends GB", "memory GB",
      "step ms");
  llvm::SmallVector<uint32_t> sizes{2, 4, 8, 16, 64, 256, 1024, 4096, 16384};
  if (!llvm::is_contained(sizes, sharding.ranks))
    sizes.insert(llvm::lower_bound(sizes, sharding.ranks), sharding.ranks);
  for (uint32_t ranks : sizes) {
    RankCost cost = costOfRank(ranks);
    out << formatv("{0} {1,8} {2,10:F3} {3,12:F3} {4,10:F3}\n",
                   ranks == sharding.ranks ? ">" : " ", ranks, cost.sent / 1e9,
                   cost.memory / 1e9, cost.ms);
  }
  out << formatv(
      "  predicted: up to {0} ranks in one launch at {1:F0} GB/s of links, "
      "more by exchanges at {2:F0} GB/s in a host (both measured on two H200) "
      "and "
      "{3:F0} GB/s between hosts, {4:F0} us a message (assumed); memory at "
      "{5:F0} GB/s\n",
      kRanksOfHost, cost::kFusedLink, cost::kExchangeLink, kNetwork,
      kMessage * 1e3, chip.bandwidth);
  return text;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

std::string Explanation::getText() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  uint64_t parameters = 0, kept = 0;
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    parameters += elementsOf(index);
    kept += elementsOf(index) * costOf(index).kept;
  }
  out << formatv("{0}: {1} tensors, {2} parameters, schedule {3}, one launch a "
                 "step for all of them{4}\n",
                 plan.optimizer, plan.tensors.size(), parameters, plan.schedule,
                 plan.hasFastMath ? "; fast math" : "");
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    uint64_t elements = elementsOf(index);
    if (elements == 0)
      continue;
    Cost cost = costOf(index);
    out << formatv("\nclass {0}: {1} parameters; bytes of each\n",
                   plan.classes[index], elements);
    out << formatv("  {0,-16} {1,-36} {2,7} {3,6} {4,8}\n", "operand", "format",
                   "reduce", "store", "written");
    for (size_t role = 0; role < plan.roles.size(); ++role) {
      size_t size = sizeOf(index, role);
      if (size == 0)
        continue;
      bool reads = isRead(index, role);
      out << formatv("  {0,-16} {1,-36} {2,7} {3,6} {4,8}\n",
                     plan.roles[role].name,
                     Plan::describe(storageOf(index, role)),
                     reads && needsReduce(index) ? size : 0, reads ? size : 0,
                     isWritten(role) ? size : 0);
    }
    out << formatv("  {0,-16} {1,-36} {2,7} {3,6} {4,8}  = {5}\n", "sum", "",
                   cost.reduceRead, cost.storeRead, cost.storeWritten,
                   cost.total());
  }
  double bytes = bytesOfStep();
  // Where bounds tell every scale.
  double least = bytes;
  if (plan.isSpeculative())
    for (size_t index = 0; index < plan.classes.size(); ++index)
      least -= static_cast<double>(elementsOf(index)) *
               static_cast<double>(costOf(index).reduceRead);
  std::string time = formatv("{0:F3}", bytes / chip.bandwidth / 1e6);
  if (least < bytes)
    time = formatv("{0:F3} (bounds tell all scales) to {1} (none)",
                   least / chip.bandwidth / 1e6, time);
  if (plan.sharding)
    out << getScaling();
  else
    out << formatv(
        "\nmemory: {5:F3} GB of weights, gradients and state; no padding\n"
        "predicted on {0}: {1} ms if memory is all that counts "
        "({2:F3} GB at {3:F0} GB/s, {4})\n",
        chip.name, time, bytes / 1e9, chip.bandwidth,
        chip.isMeasured ? "measured by a copy" : "87 % of the maker's figure",
        static_cast<double>(kept) / 1e9);
  if (plan.images.empty())
    out << "device code: none; compile with --target=cuda\n";
  else
    out << "device code:\n";
  bool runs = false;
  for (const PlanImage &image : plan.images) {
    bool isPtx = image.info.kind == plan::ImageKind::Ptx;
    out << formatv("  {0} {1}: {2} blocks of {3} threads a multiprocessor, {4} "
                   "bytes of shared memory a block",
                   image.arch, isPtx ? "PTX" : "cubin",
                   image.info.blocks_per_sm, image.info.threads,
                   image.info.shared_bytes);
    if (image.info.registers)
      out << formatv(", {0} registers, {1} bytes spilled", image.info.registers,
                     image.info.spill_bytes);
    if (image.info.capability < 89)
      out << "; no FP8 casts on this chip: by integer arithmetic";
    out << "\n";
    runs |= image.info.is_exact ? image.info.capability == chip.capability
                                : image.info.capability <= chip.capability;
  }
  if (!plan.images.empty() && !runs)
    out << formatv("  none of it runs on {0} (sm_{1})\n", chip.name,
                   chip.capability);
  return text;
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

static std::string escape(llvm::StringRef text) {
  std::string result;
  for (char c : text)
    result += c == '<'   ? "&lt;"
              : c == '>' ? "&gt;"
              : c == '&' ? "&amp;"
                         : std::string(1, c);
  return result;
}

std::string Explanation::getSvg() const {
  constexpr int left = 190, column = 170, row = 26, top = 64;
  bool hasReduce = plan.schedule != "one_pass";
  llvm::SmallVector<const char *> phases{"prepare"};
  if (hasReduce)
    phases.push_back("reduce");
  phases.append({"store", "commit"});
  std::string body;
  llvm::raw_string_ostream out(body);
  auto label = [&](int x, int y, llvm::StringRef text, const char *anchor) {
    out << formatv("<text x='{0}' y='{1}' text-anchor='{2}'>{3}</text>\n", x, y,
                   anchor, escape(text));
  };
  auto arrow = [&](int from, int to, int y) {
    out << formatv("<line x1='{0}' y1='{1}' x2='{2}' y2='{1}' stroke='#333' "
                   "marker-end='url(#tip)'/>\n",
                   from, y, to);
  };
  int y = top + 34;
  for (size_t index = 0; index < plan.classes.size(); ++index) {
    if (elementsOf(index) == 0)
      continue;
    label(10, y, "class " + plan.classes[index], "start");
    y += row;
    for (size_t role = 0; role < plan.roles.size(); ++role) {
      size_t size = sizeOf(index, role);
      if (size == 0)
        continue;
      label(left - 12, y + 4,
            formatv("{0} ({1} B)", plan.roles[role].name, size).str(), "end");
      for (auto [number, phase] : llvm::enumerate(phases)) {
        int x = left + static_cast<int>(number) * column;
        bool isStore = phase == llvm::StringRef("store");
        bool isReduce = phase == llvm::StringRef("reduce");
        if ((isStore || (isReduce && needsReduce(index))) &&
            isRead(index, role))
          arrow(x - 8, x + column / 2 - 30, y);
        if (isStore && isWritten(role))
          arrow(x + column / 2 + 10, x + column - 28, y);
      }
      y += row;
    }
    y += row / 2;
  }
  int height = y + 16;
  std::string result;
  llvm::raw_string_ostream svg(result);
  int width = left + static_cast<int>(phases.size()) * column + 20;
  svg << formatv("<svg xmlns='http://www.w3.org/2000/svg' width='{0}' "
                 "height='{1}' font-family='sans-serif' font-size='13'>\n",
                 width, height + 30)
      << "<defs><marker id='tip' markerWidth='8' markerHeight='8' refX='7' "
         "refY='3' orient='auto'><path d='M0,0 L7,3 L0,6 z' fill='#333'/>"
         "</marker></defs>\n"
      << "<rect width='100%' height='100%' fill='white'/>\n"
      << formatv("<rect x='{0}' y='30' width='{1}' height='{2}' fill='none' "
                 "stroke='#888' rx='6'/>\n",
                 left - 6, static_cast<int>(phases.size()) * column + 4,
                 height - 22)
      << formatv("<text x='{0}' y='22'>one launch: {1}, {2} tensors, schedule "
                 "{3}</text>\n",
                 left, escape(plan.optimizer), plan.tensors.size(),
                 escape(plan.schedule));
  for (auto [number, phase] : llvm::enumerate(phases)) {
    bool moves =
        phase == llvm::StringRef("reduce") || phase == llvm::StringRef("store");
    svg << formatv("<rect x='{0}' y='40' width='{1}' height='{2}' fill='{3}' "
                   "stroke='#bbb' rx='4'/>\n"
                   "<text x='{4}' y='58' text-anchor='middle'>{5}</text>\n",
                   left + static_cast<int>(number) * column, column - 20,
                   height - 40, moves ? "#eaf2ff" : "#f4f4f4",
                   left + static_cast<int>(number) * column + (column - 20) / 2,
                   phase);
  }
  svg << body
      << formatv("<text x='10' y='{0}'>{1:F2} GB a step; {2:F3} ms at {3:F0} "
                 "GB/s ({4})</text>\n</svg>\n",
                 height + 20, bytesOfStep() / 1e9,
                 bytesOfStep() / chip.bandwidth / 1e6, chip.bandwidth,
                 chip.name);
  return result;
}
