// See StateFile.h.

#include "state/StateFile.h"
#include "state/FileTensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace msamp::rt;
using Json = nlohmann::ordered_json;

Status StateFile::open(const std::string &path, StateFile &result) {
  result = {};
  result.filePath = path;
  std::error_code ignored;
  bool isFolder = std::filesystem::is_directory(path, ignored);
  MSAMP_RETURN_IF_ERROR(SafetensorsFile::open(
      isFolder ? path + "/" + indexName : path, result.file));
  return isFolder ? result.openShards(path) : Status();
}

std::string StateFile::metadata(const std::string &key) const {
  auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

Status StateFile::openShards(const std::string &folder) {
  Json index = Json::parse(metadata("msamp.shards"), nullptr, false);
  auto corrupt = [&](const std::string &what) {
    return dataLoss(file.path() + ": msamp.shards " + what);
  };
  if (!index.is_object() || !index.contains("files") ||
      !index["files"].is_array() || !index.contains("tensors") ||
      !index["tensors"].is_object())
    return corrupt("does not list files and tensors");
  for (const Json &name : index["files"]) {
    if (!name.is_string() ||
        name.get<std::string>().find('/') != std::string::npos)
      return corrupt("has " + name.dump() + ", expected the name of a file");
    shards.emplace_back();
    MSAMP_RETURN_IF_ERROR(SafetensorsFile::open(
        folder + "/" + name.get<std::string>(), shards.back()));
  }
  for (auto &[name, entry] : index["tensors"].items()) {
    Sharded tensor;
    try {
      tensor.dtype = entry.at("dtype").get<std::string>();
      tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
      for (const Json &range : entry.at("ranges"))
        for (const Json &number : range)
          if (!number.is_number_unsigned())
            return corrupt("has " + number.dump() + " in a range of '" + name +
                           "'");
      auto ranges =
          entry.at("ranges").get<std::vector<std::vector<uint64_t>>>();
      if (ranges.size() != shards.size())
        return corrupt("gives '" + name + "' " + std::to_string(ranges.size()) +
                       " ranges, but there are " +
                       std::to_string(shards.size()) + " files");
      for (size_t shard = 0; shard < shards.size(); ++shard) {
        if (ranges[shard].size() != 2)
          return corrupt("has a range of '" + name + "' that is none");
        uint64_t first = ranges[shard][0], count = ranges[shard][1];
        if (count == 0)
          continue;
        const SafetensorsView *view = shards[shard].find(name);
        if (!view)
          return missing(shards[shard], name);
        if (view->dtype != tensor.dtype ||
            view->shape != std::vector<int64_t>{static_cast<int64_t>(count)})
          return corrupt("gives '" + name + "' " + std::to_string(count) +
                         " elements of " + tensor.dtype + " in " +
                         shards[shard].path() + ", which has " + view->dtype +
                         " of shape " + Json(view->shape).dump());
        tensor.pieces.push_back({first, count, view->data});
      }
    } catch (const Json::exception &error) {
      return corrupt("is no index: " + std::string(error.what()));
    }
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const Piece &left, const Piece &right) {
                return left.first < right.first;
              });
    sharded[name] = std::move(tensor);
  }
  return {};
}

Status StateFile::read(const std::string &name, const std::string &dtype,
                       const std::vector<int64_t> &shape, size_t elementSize,
                       uint64_t first, uint64_t count, void *target) const {
  auto found = sharded.find(name);
  if (found == sharded.end()) {
    const SafetensorsView *view = file.find(name);
    if (!view)
      return missing(file, name);
    MSAMP_RETURN_IF_ERROR(checkView(file, *view, dtype, shape));
    if (count)
      std::memcpy(target, view->data + first * elementSize,
                  count * elementSize);
    return {};
  }
  // As if it were one tensor of the file.
  SafetensorsView view;
  view.name = name;
  view.dtype = found->second.dtype;
  view.shape = found->second.shape;
  MSAMP_RETURN_IF_ERROR(checkView(file, view, dtype, shape));
  uint64_t at = first, end = first + count;
  for (const Piece &piece : found->second.pieces) {
    if (piece.first > at || at == end)
      break;
    uint64_t skipped = at - piece.first;
    if (skipped >= piece.count)
      continue;
    uint64_t part = std::min(piece.count - skipped, end - at);
    std::memcpy(static_cast<char *>(target) + (at - first) * elementSize,
                piece.data + skipped * elementSize, part * elementSize);
    at += part;
  }
  if (at != end)
    return dataLoss("tensor '" + name + "' in " + filePath + " lacks element " +
                    std::to_string(at));
  return {};
}

Status StateFile::checkNoOthers(const std::set<std::string> &expected) const {
  for (const auto &[name, tensor] : sharded)
    if (!expected.count(name))
      return invalidArgument("tensor '" + name + "' in " + filePath +
                             " is not in the plan");
  return msamp::rt::checkNoOthers(file, expected);
}
