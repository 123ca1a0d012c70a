// The one reader and writer of safetensors files, shared by the runtime tools
// and by msamp-compile (which reads headers only).
//
// A file is: u64 little-endian header length N, N bytes of JSON, then the data.
// Each JSON entry maps a tensor name to {"dtype", "shape", "data_offsets"}, the
// offsets being relative to the first data byte; "__metadata__" maps strings to
// strings.

#ifndef MSAMP_RT_SAFETENSORS_SAFETENSORS_H
#define MSAMP_RT_SAFETENSORS_SAFETENSORS_H

#include "core/Status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace msamp::rt {

/// One tensor of an open file. `data` points into the file's mapping and lives
/// as long as the SafetensorsFile.
struct SafetensorsView {
  std::string name;
  std::string dtype; // as spelled in the file: "F32", "F8_E4M3", ...
  std::vector<int64_t> shape;
  const std::byte *data = nullptr;
  size_t byteSize = 0;
};

/// Bits in one element of `dtype` ("F32" -> 32), or 0 if the name is unknown.
unsigned safetensorsBitWidth(std::string_view dtype);

/// A read-only, memory-mapped safetensors file. Opening validates everything
/// that the format promises: the header length and JSON, known dtypes,
/// non-negative shapes whose byte size (computed without overflow) equals the
/// offset range, offsets that tile the data section exactly with no hole and no
/// overlap, no duplicate names, metadata of strings only. A violation is a
/// DataLoss status that names the file and the tensor and prints both values.
class SafetensorsFile {
public:
  SafetensorsFile() = default;
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile &&other) noexcept;
  SafetensorsFile &operator=(SafetensorsFile &&other) noexcept;

  /// Maps and validates the file at `path`.
  static Status open(const std::string &path, SafetensorsFile &result);

  /// Validates `size` bytes at `bytes`, which must outlive the result.
  /// `name` stands for the path in messages.
  static Status parse(const std::string &name, const std::byte *bytes,
                      size_t size, SafetensorsFile &result);

  const std::string &path() const { return filePath; }
  /// In order of their data.
  const std::vector<SafetensorsView> &tensors() const { return views; }
  /// The tensor called `name`, or null.
  const SafetensorsView *find(std::string_view name) const;
  const std::map<std::string, std::string> &metadata() const {
    return metadataMap;
  }

private:
  void unmap();

  std::string filePath;
  std::vector<SafetensorsView> views;
  std::map<std::string, size_t, std::less<>> indexByName;
  std::map<std::string, std::string> metadataMap;
  void *mapping = nullptr; // owned only when opened from a path
  size_t mappingSize = 0;
};

/// One tensor to write; `data` holds `byteSize` bytes and is not copied.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void *data = nullptr;
  size_t byteSize = 0;
};

/// Writes `entries` to `path`: data in order of falling element size (then of
/// name), header padded with spaces to a multiple of 8, so that every tensor is
/// aligned to its element. The bytes go to a temporary file beside `path`, are
/// synced and then renamed over it; on any error (read-only folder, full disk,
/// wrong byteSize, duplicate or reserved name) the temporary is removed and an
/// existing `path` is untouched.
Status writeSafetensors(const std::string &path,
                        std::vector<SafetensorsEntry> entries,
                        const std::map<std::string, std::string> &metadata);

} // namespace msamp::rt

#endif // MSAMP_RT_SAFETENSORS_SAFETENSORS_H
