// Reads and writes safetensors files.
//
// Reading trusts nothing: a checkpoint may come from anyone, and a bad offset
// that slips through here is a wild pointer in a kernel. The header streams
// through a state machine that knows which token may come next; it builds no
// JSON tree, which would hide duplicate keys and let hostile nesting eat
// memory. Writing is all or nothing: bytes go to a temporary file that replaces
// the target by rename once it is on disk, so a crash cannot cost a checkpoint.

#include "safetensors/Safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

using namespace msamp::rt;
using json = nlohmann::json;

namespace {

constexpr size_t lengthBytes = 8;
// The limit of the reference implementation: what we write, it must read.
constexpr size_t maxHeaderBytes = 100'000'000;
constexpr std::string_view metadataKey = "__metadata__";

template <typename... Parts> std::string join(const Parts &...parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic()); // others group digits, fatal in a header
  (out << ... << parts);
  return out.str();
}

/// `text` in quotes for a message, which must stay one line of bounded length
/// whatever bytes a hostile file holds.
std::string inQuotes(std::string_view text) {
  const json value(text.substr(0, 128));
  return value.dump(-1, ' ', /*ensure_ascii=*/true,
                    json::error_handler_t::replace);
}

/// Runs `body`, turning an allocation failure into a status: a header of 100 MB
/// can ask for more memory than there is. Also builds without exceptions.
template <typename Body>
Status withoutExceptions([[maybe_unused]] const std::string &path, Body body) {
#if defined(__cpp_exceptions)
  try {
    return body();
  } catch (...) {
    return ioError(path + ": out of memory");
  }
#else
  return body();
#endif
}

/// Returns what is wrong with a tensor of these properties, or "".
std::string checkTensor(std::string_view dtype,
                        const std::vector<int64_t> &shape, uint64_t byteSize) {
  uint64_t expected = safetensorsBitWidth(dtype) / 8;
  if (expected == 0)
    return join("unknown dtype ", inQuotes(dtype));
  // With a 0 anywhere, sizes that overflow on the way still hold nothing.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    expected = 0;
  for (int64_t size : shape) {
    if (size < 0)
      return join("expected non-negative sizes in the shape, got ", size);
    if (__builtin_mul_overflow(expected, uint64_t(size), &expected))
      return join("byte size of the shape overflows 64 bits at ", size);
  }
  if (expected != byteSize)
    return join("expected ", expected, " bytes for dtype ", dtype,
                " and the shape, got ", byteSize);
  return "";
}

struct HeaderEntry {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets;
  size_t position = 0; // in the header
};

/// Collects the entries of a header and stops at the first token that the
/// format does not allow, leaving the reason in `error`.
class HeaderReader final : public nlohmann::json_sax<json> {
public:
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() override { return mismatch("null"); }
  bool boolean(bool) override { return mismatch("a boolean"); }
  bool binary(json::binary_t &) override { return mismatch("binary data"); }
  bool number_float(double, const std::string &text) override {
    return mismatch("the float " + inQuotes(text));
  }
  // Called for a leading minus only. The reference refuses "-0", too.
  bool number_integer(int64_t value) override {
    return mismatch(value ? std::to_string(value) : "-0");
  }
  bool number_unsigned(uint64_t value) override {
    if (where != Numbers || value > INT64_MAX)
      return mismatch(std::to_string(value));
    numbers->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(std::string &value) override {
    if (where == Metadata)
      metadata.emplace(field, std::move(value));
    else if (where == Entry && field == "dtype")
      entries.back().dtype = std::move(value);
    else
      return mismatch("the string " + inQuotes(value));
    return true;
  }
  bool start_object(size_t) override {
    if (where > Names)
      return mismatch("an object");
    where = where == Start ? Names : name == metadataKey ? Metadata : Entry;
    if (where == Entry)
      entries.push_back({name, {}, {}, {}, entries.size()});
    return true;
  }
  bool key(std::string &text) override {
    if (where == Names) {
      keys.clear();
      name = std::move(text);
      return names.insert(name).second || fail("duplicate name");
    }
    field = std::move(text);
    if (where == Entry && field != "dtype" && field != "shape" &&
        field != "data_offsets")
      return fail("expected only dtype, shape and data_offsets");
    return keys.insert(field).second || fail("duplicate key");
  }
  bool end_object() override {
    if (where == Entry)
      for (const char *wanted : {"dtype", "shape", "data_offsets"})
        if (field = wanted; !keys.count(field))
          return fail("expected a value, got none");
    where = Names;
    return true;
  }
  bool start_array(size_t) override {
    if (where != Entry || field == "dtype")
      return mismatch("an array");
    HeaderEntry &entry = entries.back();
    numbers = field == "shape" ? &entry.shape : &entry.offsets;
    where = Numbers;
    return true;
  }
  bool end_array() override {
    where = Entry;
    return field == "shape" || numbers->size() == 2 ||
           fail(join("expected 2 offsets, got ", numbers->size()));
  }
  bool parse_error(size_t position, const std::string &token,
                   const json::exception &) override {
    error = join("expected JSON in the header, got a syntax error at its byte ",
                 position, " near ", inQuotes(token));
    return false;
  }

private:
  enum { Start, Names, Metadata, Entry, Numbers } where = Start;

  bool fail(const std::string &what) {
    error = join(name == metadataKey ? "" : "tensor ", inQuotes(name),
                 where == Names ? "" : ": " + inQuotes(field), ": ", what);
    return false;
  }
  bool mismatch(const std::string &got) {
    const char *inEntry = field == "dtype" ? "a string" : "an array";
    const char *const expected[] = {"an object", "an object", "a string",
                                    inEntry, "an integer from 0 to 2^63 - 1"};
    return fail(join("expected ", expected[where], ", got ", got));
  }

  std::string name, field; // the latest keys of the outer and an inner object
  std::set<std::string> names, keys; // all of theirs so far, to see duplicates
  std::vector<int64_t> *numbers = nullptr; // the current array
};

/// Finds and parses the header. Returns what is wrong with it, or "".
std::string readHeader(const std::byte *bytes, size_t size,
                       HeaderReader &reader, size_t &dataBegin) {
  if (size < lengthBytes)
    return join("expected at least 8 bytes for the header length, got ", size);
  uint64_t length = 0;
  for (size_t i = 0; i < lengthBytes; ++i)
    length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  const uint64_t limit = std::min(maxHeaderBytes, size - lengthBytes);
  if (length > limit)
    return join("expected a header of at most ", limit, " bytes, got ", length);
  const std::string_view text(
      reinterpret_cast<const char *>(bytes + lengthBytes), length);
  // The format demands it, while the parser would skip blanks or a BOM.
  if (text.empty() || text[0] != '{')
    return join("expected a header that begins with \"{\", got ",
                inQuotes(text.substr(0, 1)));
  // The parser takes a NUL for the end and would ignore whatever follows.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    return join("expected JSON in the header, got a NUL at its byte ", nul);
  dataBegin = lengthBytes + length;
  return json::sax_parse(text.begin(), text.end(), &reader) ? "" : reader.error;
}

template <typename Call> auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR)
    result = call();
  return result;
}

/// Closes its file and, unless `temporaryPath` is empty, removes it. Failures
/// of close are ignored: what was written has been synced by then.
struct Descriptor {
  int number = -1;
  std::string temporaryPath;

  ~Descriptor() {
    if (number >= 0)
      ::close(number);
    if (!temporaryPath.empty())
      ::unlink(temporaryPath.c_str());
  }
  bool open(const std::string &path, int flags, mode_t mode = 0) {
    flags |= O_CLOEXEC;
    number = retry([&] { return ::open(path.c_str(), flags, mode); });
    return number >= 0;
  }
  bool sync() const {
    return retry([&] { return ::fsync(number); }) == 0;
  }
};

/// The status of a failed system call, from errno.
Status systemError(const std::string &path, const std::string &action) {
  const std::error_code error(errno, std::generic_category());
  return {error.value() == ENOENT ? StatusCode::NotFound : StatusCode::IoError,
          path + ": cannot " + action + ": " + error.message()};
}

Status requireRegularFile(const std::string &path, mode_t mode) {
  if (S_ISREG(mode))
    return {};
  return invalidArgument(path + ": expected a regular file, got a " +
                         (S_ISDIR(mode) ? "directory" : "special file"));
}

} // namespace

unsigned msamp::rt::safetensorsBitWidth(std::string_view dtype) {
  static constexpr std::pair<std::string_view, unsigned> widths[] = {
      {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16},
      {"F16", 16},    {"BF16", 16},   {"I32", 32}, {"U32", 32},
      {"F32", 32},    {"I64", 64},    {"U64", 64}, {"F64", 64}};
  for (const auto &[name, bits] : widths)
    if (name == dtype)
      return bits;
  return 0;
}

SafetensorsFile::~SafetensorsFile() { unmap(); }

SafetensorsFile::SafetensorsFile(SafetensorsFile &&other) noexcept {
  *this = std::move(other);
}

SafetensorsFile &SafetensorsFile::operator=(SafetensorsFile &&other) noexcept {
  if (this == &other)
    return *this;
  unmap();
  filePath = std::exchange(other.filePath, {});
  views = std::exchange(other.views, {});
  indexByName = std::exchange(other.indexByName, {});
  metadataMap = std::exchange(other.metadataMap, {});
  mapping = std::exchange(other.mapping, nullptr);
  mappingSize = std::exchange(other.mappingSize, 0);
  return *this;
}

void SafetensorsFile::unmap() {
  if (mapping)
    ::munmap(mapping, mappingSize);
  mapping = nullptr;
}

const SafetensorsView *SafetensorsFile::find(std::string_view name) const {
  const auto found = indexByName.find(name);
  return found == indexByName.end() ? nullptr : &views[found->second];
}

Status SafetensorsFile::parse(const std::string &name, const std::byte *bytes,
                              size_t size, SafetensorsFile &result) {
  return withoutExceptions(name, [&]() -> Status {
    HeaderReader reader;
    size_t dataBegin = 0;
    std::string error = readHeader(bytes, size, reader, dataBegin);
    if (!error.empty())
      return dataLoss(name + ": " + error);
    // By (begin, end), so that an empty tensor precedes the one it touches;
    // empty ones at the same place keep the order of the header.
    std::sort(reader.entries.begin(), reader.entries.end(),
              [](const HeaderEntry &a, const HeaderEntry &b) {
                return a.offsets != b.offsets ? a.offsets < b.offsets
                                              : a.position < b.position;
              });
    SafetensorsFile file;
    file.filePath = name;
    const auto dataSize = static_cast<int64_t>(size - dataBegin);
    int64_t next = 0;
    for (HeaderEntry &entry : reader.entries) {
      const int64_t begin = entry.offsets[0], end = entry.offsets[1];
      if (begin > end)
        error = join("expected data_offsets in order, got ", begin, ", ", end);
      else if (end > dataSize)
        error = join("expected data_offsets up to ", dataSize, ", got ", end);
      else if (begin != next)
        error = join(begin < next ? "overlap" : "hole",
                     ": expected data_offsets from ", next, ", got ", begin);
      else
        error = checkTensor(entry.dtype, entry.shape, end - begin);
      if (!error.empty())
        return dataLoss(
            join(name, ": tensor ", inQuotes(entry.name), ": ", error));
      next = end;
      file.indexByName.emplace(entry.name, file.views.size());
      file.views.push_back({std::move(entry.name), std::move(entry.dtype),
                            std::move(entry.shape), bytes + dataBegin + begin,
                            static_cast<size_t>(end - begin)});
    }
    if (next != dataSize)
      return dataLoss(
          join(name, ": expected ", next, " bytes of data, got ", dataSize));
    file.metadataMap = std::move(reader.metadata);
    result = std::move(file);
    return {};
  });
}

Status SafetensorsFile::open(const std::string &path, SafetensorsFile &result) {
  // Without O_NONBLOCK, a FIFO would block here for ever.
  Descriptor file;
  struct stat info;
  if (!file.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY) ||
      ::fstat(file.number, &info) != 0)
    return systemError(path, "open");
  MSAMP_RETURN_IF_ERROR(requireRegularFile(path, info.st_mode));
  const auto size = static_cast<size_t>(info.st_size);
  void *address = nullptr; // an empty file cannot be mapped
  if (size > 0)
    address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED)
    return systemError(path, "map");
  SafetensorsFile parsed;
  Status status =
      parse(path, static_cast<const std::byte *>(address), size, parsed);
  parsed.mapping = address; // owned from here, also after a failure
  parsed.mappingSize = size;
  if (status.ok())
    result = std::move(parsed);
  return status;
}

namespace {

/// Dumps `value` to `out`; false if a string in it is not UTF-8.
bool appendJson(std::string &out, const json &value) {
  // dump's strict mode would throw. Of the other two, one drops bad bytes and
  // one replaces them, so they agree exactly when there are none.
  using Handler = json::error_handler_t;
  const std::string text = value.dump(-1, ' ', false, Handler::ignore);
  out += text;
  return text.size() == value.dump(-1, ' ', false, Handler::replace).size();
}

/// Builds the header with its length. Returns what is wrong with it, or "".
std::string buildHeader(const std::vector<SafetensorsEntry> &entries,
                        const std::map<std::string, std::string> &metadata,
                        std::string &header) {
  header = std::string(lengthBytes, '\0') + '{';
  for (const auto &[key, value] : metadata) {
    header += header.back() == '{' ? "\"__metadata__\":{" : ",";
    if (!appendJson(header, key) || !appendJson(header += ':', value))
      return join("expected UTF-8 in the metadata, got ", inQuotes(key), ": ",
                  inQuotes(value));
  }
  header += metadata.empty() ? "" : "}";
  std::set<std::string_view> names{metadataKey};
  size_t end = 0;
  for (const auto &[name, dtype, shape, data, byteSize] : entries) {
    header += header.back() == '{' ? "" : ",";
    std::string error = checkTensor(dtype, shape, byteSize);
    if (!names.insert(name).second)
      error = name == metadataKey ? "reserved name" : "duplicate name";
    else if (error.empty() && !data && byteSize > 0)
      error = join("expected ", byteSize, " bytes, got a null pointer");
    else if (!appendJson(header, name))
      error = "expected a name in UTF-8";
    if (!error.empty())
      return join("tensor ", inQuotes(name), ": ", error);
    header += join(":{\"dtype\":\"", dtype, "\",\"shape\":", json(shape),
                   ",\"data_offsets\":[", end, ",", end + byteSize, "]}");
    end += byteSize;
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size() - lengthBytes;
  if (length > maxHeaderBytes)
    return join("expected a header of at most ", maxHeaderBytes, " bytes, got ",
                length);
  for (size_t i = 0; i < lengthBytes; ++i)
    header[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return "";
}

bool writeAll(const Descriptor &file, const void *data, size_t size) {
  const char *next = static_cast<const char *>(data);
  while (size > 0) {
    ssize_t done = retry([&] { return ::write(file.number, next, size); });
    if (done <= 0)
      return false;
    next += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

Status replaceFile(const std::string &path, const std::string &header,
                   const std::vector<SafetensorsEntry> &entries) {
  // A rename would replace a device or FIFO rather than write to it, and would
  // give a private checkpoint the default mode.
  mode_t mode = 0666;
  if (struct stat info; ::stat(path.c_str(), &info) == 0) {
    MSAMP_RETURN_IF_ERROR(requireRegularFile(path, info.st_mode));
    mode = info.st_mode & 0777;
  }
  // Opened first: after the rename it is too late to leave `path` untouched.
  Descriptor folder, file;
  const size_t slash = path.rfind('/');
  if (!folder.open(slash == path.npos ? "." : path.substr(0, slash + 1),
                   O_RDONLY | O_DIRECTORY))
    return systemError(path, "open its folder");
  // The process id tells processes apart and the counter threads. Where ids
  // repeat (containers), a crash may have left a file; it is stepped over.
  static std::atomic<unsigned> counter{0};
  std::string name;
  do
    name = join(path, ".tmp.", ::getpid(), ".", counter++);
  while (!file.open(name, O_WRONLY | O_CREAT | O_EXCL, mode) &&
         errno == EEXIST);
  if (file.number < 0)
    return systemError(path, "create a temporary file beside it");
  file.temporaryPath = name;
  if (!writeAll(file, header.data(), header.size()))
    return systemError(path, "write the header");
  for (const SafetensorsEntry &entry : entries)
    if (!writeAll(file, entry.data, entry.byteSize))
      return systemError(path, "write tensor " + inQuotes(entry.name));
  if (!file.sync())
    return systemError(path, "sync");
  if (::rename(name.c_str(), path.c_str()) != 0)
    return systemError(path, "rename the temporary file");
  file.temporaryPath.clear();
  // Some network file systems cannot sync a folder (EINVAL) and need not.
  if (!folder.sync() && errno != EINVAL)
    return systemError(path, "sync its folder");
  return {};
}

} // namespace

Status msamp::rt::writeSafetensors(
    const std::string &path, std::vector<SafetensorsEntry> entries,
    const std::map<std::string, std::string> &metadata) {
  return withoutExceptions(path, [&]() -> Status {
    std::sort(entries.begin(), entries.end(),
              [](const SafetensorsEntry &a, const SafetensorsEntry &b) {
                const unsigned aBits = safetensorsBitWidth(a.dtype);
                const unsigned bBits = safetensorsBitWidth(b.dtype);
                return aBits != bBits ? aBits > bBits : a.name < b.name;
              });
    std::string header;
    if (std::string error = buildHeader(entries, metadata, header);
        !error.empty())
      return invalidArgument(path + ": " + error);
    return replaceFile(path, header, entries);
  });
}
