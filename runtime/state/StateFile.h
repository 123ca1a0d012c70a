// Saved state as one thing, whether it is one file or a folder with a file of
// each rank.
//
// A folder has index.safetensors, which holds what all ranks share (scales,
// histories, steps, metadata) and, in the metadata "msamp.shards", the names of
// the other files and which elements each has. It is written last and read
// first, so a save that is cut short leaves what the index named before.

#ifndef MSAMP_RT_STATE_STATEFILE_H
#define MSAMP_RT_STATE_STATEFILE_H

#include "core/Status.h"
#include "safetensors/Safetensors.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace msamp::rt {

class StateFile {
public:
  static constexpr char indexName[] = "index.safetensors";

  /// Opens the file or folder at `path`, and all files that it names.
  static Status open(const std::string &path, StateFile &result);

  const std::string &path() const { return filePath; }
  /// The value of `key`, or "".
  std::string metadata(const std::string &key) const;

  /// Copies elements [first, first + count) of tensor `name` to `target`.
  /// `dtype` and `shape` are what the whole tensor must have.
  Status read(const std::string &name, const std::string &dtype,
              const std::vector<int64_t> &shape, size_t elementSize,
              uint64_t first, uint64_t count, void *target) const;

  /// Fails if there is a tensor that is not in `expected`.
  Status checkNoOthers(const std::set<std::string> &expected) const;

private:
  /// Elements [first, first + count) of a tensor, from `data` on.
  struct Piece {
    uint64_t first, count;
    const std::byte *data;
  };
  struct Sharded {
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<Piece> pieces;
  };

  Status openShards(const std::string &folder);

  std::string filePath;
  /// The only file, or the index.
  SafetensorsFile file;
  std::vector<SafetensorsFile> shards;
  std::map<std::string, Sharded> sharded;
};

} // namespace msamp::rt

#endif // MSAMP_RT_STATE_STATEFILE_H
