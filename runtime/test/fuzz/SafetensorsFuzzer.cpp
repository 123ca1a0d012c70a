// Fuzzes the safetensors parser: whatever the bytes, it either refuses them or
// returns views that a kernel may dereference. Aborts on any broken promise.
//
// The first input byte picks the shape of the rest. Odd: a whole file, which
// exercises the length checks. Even: only the JSON, to which a correct length
// and half that byte's value of data are added; a fuzzer rarely guesses the
// length field, and without it no input would get past the first check.

#include "safetensors/Safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

using namespace msamp::rt;

namespace {

void require(bool promise) {
  if (!promise)
    std::abort();
}

/// Checks what SafetensorsFile::parse promises about the accepted `bytes`.
void checkInvariants(const SafetensorsFile &file,
                     const std::vector<std::byte> &bytes) {
  uint64_t headerSize = 0;
  for (size_t i = 0; i < 8; ++i)
    headerSize |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  require(headerSize <= bytes.size() - 8);

  const std::byte *next = bytes.data() + 8 + headerSize;
  const std::byte *end = bytes.data() + bytes.size();
  std::set<std::string> names;
  for (const SafetensorsView &view : file.tensors()) {
    require(view.data == next); // no hole, no overlap
    require(view.byteSize <= static_cast<size_t>(end - next));
    next += view.byteSize;

    const unsigned bits = safetensorsBitWidth(view.dtype);
    require(bits != 0 && bits % 8 == 0);
    // A product that wraps is caught by the division; a zero needs no product.
    uint64_t expected = bits / 8;
    for (int64_t size : view.shape)
      expected = size == 0 ? 0 : expected;
    for (int64_t size : view.shape) {
      require(size >= 0);
      const uint64_t product = expected * static_cast<uint64_t>(size);
      require(size == 0 || product / static_cast<uint64_t>(size) == expected);
      expected = product;
    }
    require(view.byteSize == expected);

    require(view.name != "__metadata__");
    require(names.insert(view.name).second);
    require(file.find(view.name) == &view);
    // Touches both ends, so that AddressSanitizer sees a view that is outside.
    if (view.byteSize > 0) {
      volatile std::byte sink = view.data[0];
      sink = view.data[view.byteSize - 1];
      static_cast<void>(sink);
    }
  }
  require(next == end);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  const uint8_t mode = data[0];
  const auto *rest = reinterpret_cast<const std::byte *>(data + 1);
  std::vector<std::byte> bytes;
  if (mode % 2 == 0)
    for (size_t i = 0; i < 8; ++i)
      bytes.push_back(static_cast<std::byte>(uint64_t(size - 1) >> (8 * i)));
  bytes.insert(bytes.end(), rest, rest + size - 1);
  if (mode % 2 == 0)
    bytes.resize(bytes.size() + mode / 2);
  bytes.shrink_to_fit(); // slack would hide an overread

  SafetensorsFile file;
  const Status status =
      SafetensorsFile::parse("fuzz", bytes.data(), bytes.size(), file);
  if (status.ok()) {
    checkInvariants(file, bytes);
  } else {
    require(status.code() == StatusCode::DataLoss);
    require(status.message().find('\n') == std::string::npos);
    require(file.tensors().empty() && file.metadata().empty());
  }
  return 0;
}
