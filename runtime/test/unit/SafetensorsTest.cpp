// Tests the safetensors reader and writer: what is written reads back bit for
// bit, every malformed file is refused with a message that names the culprit,
// and a write that fails leaves the old file alone.
//
// Malformed files are spelled out as JSON in tables, because the writer cannot
// produce them and a reader tested only on its own writer's output would share
// its mistakes.

#include "safetensors/Safetensors.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace msamp::rt;

namespace {

using Metadata = std::map<std::string, std::string>;

constexpr const char *allDtypes[] = {
    "BOOL", "U8",   "I8",  "F8_E4M3", "F8_E5M2", "F8_E8M0", "I16", "U16",
    "F16",  "BF16", "I32", "U32",     "F32",     "I64",     "U64", "F64"};

/// A file with `header` (given its length) and `dataSize` bytes of data.
std::string fileOf(const std::string &header, size_t dataSize = 0) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i)
    file += static_cast<char>(uint64_t(header.size()) >> (8 * i) & 0xff);
  return file + header + std::string(dataSize, 'x');
}

/// A header of one tensor "a" whose entry is `entry`.
std::string oneTensor(const std::string &entry) {
  return "{\"a\":{" + entry + "}}";
}

/// Parses a copy that has no slack, so that a sanitizer sees any overread.
Status parseCopy(const std::string &file, SafetensorsFile &result,
                 std::unique_ptr<std::byte[]> &copy) {
  copy.reset(new std::byte[file.size()]);
  std::memcpy(copy.get(), file.data(), file.size());
  return SafetensorsFile::parse("file", copy.get(), file.size(), result);
}

/// The message with which the parser refuses `file`, or "accepted".
std::string refusal(const std::string &file) {
  SafetensorsFile result;
  std::unique_ptr<std::byte[]> copy;
  Status status = parseCopy(file, result, copy);
  if (status.ok())
    return "accepted";
  EXPECT_EQ(status.code(), StatusCode::DataLoss);
  EXPECT_EQ(status.message().find_first_of("\n\r"), std::string::npos);
  EXPECT_TRUE(result.tensors().empty());
  return status.message();
}

std::string readBytes(const std::string &path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

void writeBytes(const std::string &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string bytesOf(const SafetensorsView &view) {
  return {reinterpret_cast<const char *>(view.data), view.byteSize};
}

/// An entry over `bytes`, which must outlive it.
SafetensorsEntry entryOf(const std::string &name, const std::string &dtype,
                         std::vector<int64_t> shape, const std::string &bytes) {
  return {name, dtype, std::move(shape), bytes.data(), bytes.size()};
}

/// Gives each test an empty folder.
class SafetensorsTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "safetensorsXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    path = folder + "/model.safetensors";
  }
  void TearDown() override {
    for (const std::string &name : listFolder())
      std::remove((folder + "/" + name).c_str());
    EXPECT_EQ(::rmdir(folder.c_str()), 0);
  }
  std::vector<std::string> listFolder() const {
    std::vector<std::string> names;
    DIR *stream = ::opendir(folder.c_str());
    while (const dirent *entry = ::readdir(stream))
      if (std::string name = entry->d_name; name != "." && name != "..")
        names.push_back(name);
    ::closedir(stream);
    return names;
  }
  /// Writes `entries` and opens the result.
  SafetensorsFile roundTrip(const std::vector<SafetensorsEntry> &entries,
                            const Metadata &metadata = {}) const {
    SafetensorsFile file;
    Status status = writeSafetensors(path, entries, metadata);
    EXPECT_TRUE(status.ok()) << status.message();
    status = SafetensorsFile::open(path, file);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(listFolder(), std::vector<std::string>{"model.safetensors"});
    return file;
  }
  /// The message with which the writer refuses `entries`.
  std::string writeRefusal(const std::vector<SafetensorsEntry> &entries,
                           const Metadata &metadata = {}) const {
    const Status status = writeSafetensors(path, entries, metadata);
    EXPECT_TRUE(listFolder().empty());
    if (status.ok())
      return "accepted";
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    return status.message();
  }

  std::string folder, path;
};

TEST_F(SafetensorsTest, RoundTripsEveryDtype) {
  std::map<std::string, std::string> data;
  std::vector<SafetensorsEntry> entries;
  for (const char *dtype : allDtypes) {
    std::string &bytes = data[dtype];
    for (unsigned i = 0; i < 6 * safetensorsBitWidth(dtype) / 8; ++i)
      bytes += static_cast<char>(i * 37 + data.size() * 11);
    entries.push_back(entryOf(std::string("t.") + dtype, dtype, {2, 3}, bytes));
  }
  const SafetensorsFile file = roundTrip(entries);
  EXPECT_EQ(file.path(), path);
  ASSERT_EQ(file.tensors().size(), std::size(allDtypes));
  for (const char *dtype : allDtypes) {
    const SafetensorsView *view = file.find(std::string("t.") + dtype);
    ASSERT_NE(view, nullptr) << dtype;
    EXPECT_EQ(view->dtype, dtype);
    EXPECT_EQ(view->shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(bytesOf(*view), data[dtype]);
  }
  EXPECT_EQ(file.find("t."), nullptr);
}

TEST(SafetensorsBitWidthTest, KnowsEveryDtypeAndNothingElse) {
  const unsigned expected[] = {8,  8,  8,  8,  8,  8,  16, 16,
                               16, 16, 32, 32, 32, 64, 64, 64};
  for (size_t i = 0; i < std::size(allDtypes); ++i)
    EXPECT_EQ(safetensorsBitWidth(allDtypes[i]), expected[i]) << allDtypes[i];
  for (const char *dtype : {"", "F", "f32", "F32 ", "F8", "F4", "C64"})
    EXPECT_EQ(safetensorsBitWidth(dtype), 0u) << dtype;
}

TEST_F(SafetensorsTest, OrdersDataByElementSizeThenName) {
  const std::string one(1, 'a'), six(6, 'b'), eight(8, 'c');
  const SafetensorsFile file = roundTrip({
      entryOf("b8", "U8", {1}, one),
      entryOf("z16", "BF16", {3}, six),
      entryOf("a8", "F8_E4M3", {1}, one),
      entryOf("a16", "F16", {3}, six),
      entryOf("z64", "F64", {}, eight),
      entryOf("m32", "F32", {2, 1}, eight),
  });
  std::vector<std::string> names;
  const std::byte *first = file.tensors().front().data;
  for (const SafetensorsView &view : file.tensors()) {
    names.push_back(view.name);
    const size_t alignment = safetensorsBitWidth(view.dtype) / 8;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % alignment, 0u);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"z64", "m32", "a16", "z16", "a8", "b8"}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 8, 0u);
}

TEST_F(SafetensorsTest, WritesTheDocumentedBytes) {
  const std::string bytes = "wxyz";
  ASSERT_TRUE(
      writeSafetensors(path, {entryOf("a", "F32", {1}, bytes)}, {{"k", "v"}})
          .ok());
  std::string header = "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":"
                       "\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(readBytes(path), fileOf(header) + bytes);
}

TEST_F(SafetensorsTest, RoundTripsMetadataAndOddNames) {
  const std::string bytes = "ab";
  const Metadata metadata = {{"", ""},
                             {"quote\"\\", "line\nbreak\ttab\x01"},
                             {"unicode \xc3\xa9", "\xf0\x9f\x98\x80"},
                             {std::string("nul\0", 4), "__metadata__"}};
  const std::string names[] = {"", "{", "\"quoted\"", "\xe6\xa8\xa1",
                               std::string("a\0b", 3)};
  std::vector<SafetensorsEntry> entries;
  for (const std::string &name : names)
    entries.push_back(entryOf(name, "I8", {2}, bytes));
  const SafetensorsFile file = roundTrip(entries, metadata);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), std::size(names));
  for (const std::string &name : names)
    EXPECT_NE(file.find(name), nullptr);
}

TEST_F(SafetensorsTest, AllowsFilesWithoutTensors) {
  EXPECT_TRUE(roundTrip({}).tensors().empty());
  const SafetensorsFile file = roundTrip({}, {{"k", "v"}});
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(refusal(fileOf("{}")), "accepted");
  EXPECT_EQ(refusal(fileOf("{\"__metadata__\":{}}  ")), "accepted");
}

TEST_F(SafetensorsTest, AllowsEmptyAndScalarTensors) {
  const std::string none, four = "abcd";
  const int64_t huge = int64_t(1) << 62; // overflows unless the 0 counts first
  const SafetensorsFile file = roundTrip({
      {"null", "F32", {0}, nullptr, 0},
      entryOf("empty", "F32", {huge, huge, 0}, none),
      entryOf("scalar", "F32", {}, four),
      entryOf("later", "U8", {3, 0, 2}, none),
  });
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.find("empty")->byteSize, 0u);
  EXPECT_EQ(file.find("empty")->shape, (std::vector<int64_t>{huge, huge, 0}));
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(bytesOf(*file.find("scalar")), four);
  // The order of the file survives where offsets cannot tell.
  EXPECT_EQ(file.tensors()[0].name, "empty");
  EXPECT_EQ(file.tensors()[1].name, "null");
  EXPECT_EQ(file.tensors()[3].name, "later");
}

TEST(SafetensorsParseTest, OrdersTensorsByDataNotByHeader) {
  SafetensorsFile file;
  std::unique_ptr<std::byte[]> copy;
  Status status = parseCopy(
      fileOf("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
             "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
             "\"a\":{\"shape\":[1],\"data_offsets\":[0,1],\"dtype\":\"I8\"}}",
             3),
      file, copy);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "c");
  EXPECT_EQ(file.tensors()[2].name, "b");
}

struct Malformed {
  const char *label;
  std::string file;
  const char *message;
};

void expectRefused(const std::vector<Malformed> &cases) {
  for (const auto &[label, file, message] : cases)
    EXPECT_EQ(refusal(file), std::string("file: ") + message) << label;
}

TEST(SafetensorsParseTest, RefusesBrokenFraming) {
  const std::string hugeLength("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  std::string overLimit = fileOf("{}");
  overLimit.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  overLimit.resize(100'000'100, ' ');
  expectRefused({
      {"nothing", "", "expected at least 8 bytes for the header length, got 0"},
      {"seven bytes", "1234567",
       "expected at least 8 bytes for the header length, got 7"},
      {"length past the file", hugeLength + "{}",
       "expected a header of at most 2 bytes, got 18446744073709551615"},
      {"length past the limit", overLimit,
       "expected a header of at most 100000000 bytes, got 100000001"},
      {"no header", fileOf(""),
       "expected a header that begins with \"{\", got \"\""},
      {"leading blank", fileOf(" {}"),
       "expected a header that begins with \"{\", got \" \""},
      {"byte order mark", fileOf("\xef\xbb\xbf{}"),
       "expected a header that begins with \"{\", got \"\\ufffd\""},
      {"array", fileOf("[]"),
       "expected a header that begins with \"{\", got \"[\""},
      {"NUL padding", fileOf(std::string("{}\0\0", 4)),
       "expected JSON in the header, got a NUL at its byte 2"},
      {"trailing comma", fileOf("{},"),
       "expected JSON in the header, got a syntax error at its byte 3 near "
       "\"{},\""},
      {"cut off", fileOf("{"),
       "expected JSON in the header, got a syntax error at its byte 2 near "
       "\"{\""},
      {"comment", fileOf("{/**/}"),
       "expected JSON in the header, got a syntax error at its byte 2 near "
       "\"{/\""},
      {"bad UTF-8", fileOf("{\"\xff\":{}}"),
       "expected JSON in the header, got a syntax error at its byte 3 near "
       "\"\\\"\\ufffd\""},
      {"trailing data", fileOf("{}", 3), "expected 0 bytes of data, got 3"},
  });
}

TEST(SafetensorsParseTest, RefusesBrokenEntries) {
  const std::string dtype = "\"dtype\":\"U8\"", shape = "\"shape\":[1]";
  const std::string offsets = "\"data_offsets\":[0,1]";
  const std::string tensor = dtype + "," + shape + "," + offsets;
  const auto inOneTensor = [](const std::string &entry) {
    return fileOf(oneTensor(entry), 1);
  };
  const std::string twice = "{\"a\":{" + tensor + "},\"a\":{" + tensor + "}}";
  expectRefused({
      {"duplicate name", fileOf(twice, 1), "tensor \"a\": duplicate name"},
      {"duplicate dtype", inOneTensor(dtype + "," + tensor),
       "tensor \"a\": \"dtype\": duplicate key"},
      {"duplicate shape", inOneTensor(shape + "," + tensor),
       "tensor \"a\": \"shape\": duplicate key"},
      {"duplicate offsets", inOneTensor(offsets + "," + tensor),
       "tensor \"a\": \"data_offsets\": duplicate key"},
      {"unknown key", inOneTensor("\"x\":1," + tensor),
       "tensor \"a\": \"x\": expected only dtype, shape and data_offsets"},
      {"no dtype", inOneTensor(shape + "," + offsets),
       "tensor \"a\": \"dtype\": expected a value, got none"},
      {"no shape", inOneTensor(dtype + "," + offsets),
       "tensor \"a\": \"shape\": expected a value, got none"},
      {"no offsets", inOneTensor(dtype + "," + shape),
       "tensor \"a\": \"data_offsets\": expected a value, got none"},
      {"not an object", fileOf("{\"a\":[]}"),
       "tensor \"a\": expected an object, got an array"},
      {"null", fileOf("{\"a\":null}"),
       "tensor \"a\": expected an object, got null"},
      {"dtype is a number", inOneTensor("\"dtype\":8"),
       "tensor \"a\": \"dtype\": expected a string, got 8"},
      {"dtype is an array", inOneTensor("\"dtype\":[]"),
       "tensor \"a\": \"dtype\": expected a string, got an array"},
      {"shape is a string", inOneTensor("\"shape\":\"1\""),
       "tensor \"a\": \"shape\": expected an array, got the string \"1\""},
      {"shape is an object", inOneTensor("\"shape\":{}"),
       "tensor \"a\": \"shape\": expected an array, got an object"},
      {"nested shape", inOneTensor("\"shape\":[[1]]"),
       "tensor \"a\": \"shape\": expected an integer from 0 to 2^63 - 1, got "
       "an array"},
      {"one offset", inOneTensor("\"data_offsets\":[0]"),
       "tensor \"a\": \"data_offsets\": expected 2 offsets, got 1"},
      {"three offsets", inOneTensor("\"data_offsets\":[0,1,1]"),
       "tensor \"a\": \"data_offsets\": expected 2 offsets, got 3"},
      {"deep nesting", fileOf("{\"a\":" + std::string(1000000, '[')),
       "tensor \"a\": expected an object, got an array"},
  });
}

TEST(SafetensorsParseTest, RefusesNumbersThatAreNoSizes) {
  const std::pair<const char *, const char *> numbers[] = {
      {"-1", "-1"},
      {"-0", "-0"},
      {"1.0", "the float \"1.0\""},
      {"1e0", "the float \"1e0\""},
      {"true", "a boolean"},
      {"null", "null"},
      {"\"1\"", "the string \"1\""},
      {"9223372036854775808", "9223372036854775808"},
      {"18446744073709551616", "the float \"18446744073709551616\""},
  };
  for (const auto &[text, got] : numbers) {
    const std::string expected =
        std::string("expected an integer from 0 to 2^63 - 1, got ") + got;
    const std::string array = "[" + std::string(text) + "]";
    EXPECT_EQ(refusal(fileOf(oneTensor("\"shape\":" + array))),
              "file: tensor \"a\": \"shape\": " + expected);
    EXPECT_EQ(refusal(fileOf(oneTensor("\"data_offsets\":" + array))),
              "file: tensor \"a\": \"data_offsets\": " + expected);
  }
}

TEST(SafetensorsParseTest, RefusesBrokenMetadata) {
  expectRefused({
      {"number", fileOf("{\"__metadata__\":{\"k\":1}}"),
       "\"__metadata__\": \"k\": expected a string, got 1"},
      {"object", fileOf("{\"__metadata__\":{\"k\":{}}}"),
       "\"__metadata__\": \"k\": expected a string, got an object"},
      {"no object", fileOf("{\"__metadata__\":\"k\"}"),
       "\"__metadata__\": expected an object, got the string \"k\""},
      {"duplicate key", fileOf("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"),
       "\"__metadata__\": \"k\": duplicate key"},
      {"twice", fileOf("{\"__metadata__\":{},\"__metadata__\":{}}"),
       "\"__metadata__\": duplicate name"},
  });
}

TEST(SafetensorsParseTest, RefusesBrokenLayout) {
  const auto entry = [](const std::string &dtype, const std::string &shape,
                        const std::string &offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
           "],\"data_offsets\":[" + offsets + "]}";
  };
  const auto one = [&](const std::string &dtype, const std::string &shape,
                       const std::string &offsets, size_t dataSize) {
    return fileOf("{\"a\":" + entry(dtype, shape, offsets) + "}", dataSize);
  };
  const auto two = [&](const std::string &a, const std::string &b,
                       size_t dataSize) {
    return fileOf("{\"a\":" + entry("U8", "2", a) +
                      ",\"b\":" + entry("U8", "2", b) + "}",
                  dataSize);
  };
  const std::string wide = "4294967296,4294967296"; // 2^64 elements
  expectRefused({
      {"unknown dtype", one("F4", "2", "0,1", 1),
       "tensor \"a\": unknown dtype \"F4\""},
      {"too few bytes", one("F32", "2", "0,7", 7),
       "tensor \"a\": expected 8 bytes for dtype F32 and the shape, got 7"},
      {"scalar of no bytes", one("F32", "", "0,0", 0),
       "tensor \"a\": expected 4 bytes for dtype F32 and the shape, got 0"},
      {"elements overflow", one("U8", wide, "0,0", 0),
       "tensor \"a\": byte size of the shape overflows 64 bits at 4294967296"},
      {"bytes overflow", one("F64", "2305843009213693952", "0,0", 0),
       "tensor \"a\": byte size of the shape overflows 64 bits at "
       "2305843009213693952"},
      {"reversed", one("U8", "2", "2,0", 2),
       "tensor \"a\": expected data_offsets in order, got 2, 0"},
      {"past the data", one("U8", "2", "0,2", 1),
       "tensor \"a\": expected data_offsets up to 1, got 2"},
      {"far past the data", one("U8", "2", "0,9223372036854775807", 2),
       "tensor \"a\": expected data_offsets up to 2, got 9223372036854775807"},
      {"hole at the start", one("U8", "2", "1,3", 3),
       "tensor \"a\": hole: expected data_offsets from 0, got 1"},
      {"hole", two("0,2", "3,5", 5),
       "tensor \"b\": hole: expected data_offsets from 2, got 3"},
      {"overlap", two("0,2", "1,3", 3),
       "tensor \"b\": overlap: expected data_offsets from 2, got 1"},
      {"same range", two("0,2", "0,2", 2),
       "tensor \"b\": overlap: expected data_offsets from 2, got 0"},
      {"trailing bytes", two("0,2", "2,4", 5),
       "expected 4 bytes of data, got 5"},
  });
}

TEST(SafetensorsParseTest, BoundsAndEscapesWhatMessagesQuote) {
  const std::string name(100000, 'n');
  EXPECT_LT(refusal(fileOf("{\"" + name + "\":1}")).size(), 300u);
  EXPECT_LT(refusal(fileOf("{\"a\":" + std::string(100000, '1') + "}")).size(),
            300u);
  EXPECT_EQ(refusal(fileOf("{\"\\n\xc3\xa9\":1}")),
            "file: tensor \"\\n\\u00e9\": expected an object, got 1");
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string eight(8, 'e'), three(3, 't');
  roundTrip({entryOf("a", "F32", {2}, eight), entryOf("b", "I8", {3}, three)},
            {{"k", "v"}});
  const std::string whole = readBytes(path);
  EXPECT_EQ(refusal(whole), "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << size;
    writeBytes(path, whole.substr(0, size));
    SafetensorsFile file;
    const Status status = SafetensorsFile::open(path, file);
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_EQ(status.code(), StatusCode::DataLoss);
    EXPECT_EQ(status.message().rfind(path + ": ", 0), 0u) << status.message();
  }
}

TEST_F(SafetensorsTest, OpensRegularFilesOnly) {
  const auto failure = [](const std::string &target) -> Status {
    SafetensorsFile file;
    return SafetensorsFile::open(target, file);
  };
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const auto &[target, kind] :
       {std::pair(path, "special file"), std::pair(folder, "directory"),
        std::pair(std::string("/dev/null"), "special file")}) {
    const Status status = failure(target);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_EQ(status.message(),
              target + ": expected a regular file, got a " + kind);
  }
  const Status status = failure(folder + "/none");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::NotFound);
  EXPECT_EQ(status.message(),
            folder + "/none: cannot open: No such file or directory");
}

TEST_F(SafetensorsTest, MovesKeepViewsAndFailedOpensKeepTheResult) {
  const std::string bytes = "abcd";
  SafetensorsFile first = roundTrip({entryOf("a", "F32", {}, bytes)});
  SafetensorsFile second(std::move(first));
  EXPECT_TRUE(first.tensors().empty()); // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.find("a"), nullptr);
  first = std::move(second);
  EXPECT_FALSE(SafetensorsFile::open(folder, first).ok());
  EXPECT_EQ(bytesOf(*first.find("a")), bytes);
  // The mapping outlives the name in the folder, and opening replaces it.
  ASSERT_TRUE(writeSafetensors(path, {}, {}).ok());
  EXPECT_EQ(bytesOf(*first.find("a")), bytes);
  ASSERT_TRUE(SafetensorsFile::open(path, first).ok());
  EXPECT_EQ(first.find("a"), nullptr);
}

TEST_F(SafetensorsTest, WriterRefusesBadEntries) {
  const std::string four = "abcd", prefix = path + ": tensor \"a\": ";
  const auto refused = [&](const char *dtype, std::vector<int64_t> shape) {
    return writeRefusal({entryOf("a", dtype, std::move(shape), four)});
  };
  EXPECT_EQ(refused("F4", {4}), prefix + "unknown dtype \"F4\"");
  EXPECT_EQ(refused("F32", {2}),
            prefix + "expected 8 bytes for dtype F32 and the shape, got 4");
  EXPECT_EQ(refused("F32", {-1}),
            prefix + "expected non-negative sizes in the shape, got -1");
  EXPECT_EQ(refused("F32", {0, -1}),
            prefix + "expected non-negative sizes in the shape, got -1");
  EXPECT_EQ(refused("F32", {INT64_MAX}),
            prefix + "byte size of the shape overflows 64 bits at "
                     "9223372036854775807");
  EXPECT_EQ(writeRefusal({{"a", "F32", {1}, nullptr, 4}}),
            prefix + "expected 4 bytes, got a null pointer");
  EXPECT_EQ(writeRefusal({entryOf("a", "F32", {1}, four),
                          entryOf("a", "I8", {4}, four)}),
            prefix + "duplicate name");
  EXPECT_EQ(writeRefusal({entryOf("__metadata__", "F32", {1}, four)}),
            path + ": tensor \"__metadata__\": reserved name");
}

TEST_F(SafetensorsTest, WriterRefusesWhatIsNotUtf8) {
  const std::string four = "abcd";
  // A stray byte, an overlong form, a surrogate, past U+10FFFF, cut short.
  for (const std::string bad :
       {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "x\xe2\x82"}) {
    EXPECT_NE(writeRefusal({entryOf(bad, "F32", {1}, four)})
                  .find("expected a name in UTF-8"),
              std::string::npos);
    for (const Metadata &metadata : {Metadata{{bad, ""}}, Metadata{{"", bad}}})
      EXPECT_NE(writeRefusal({}, metadata)
                    .find("expected UTF-8 in the metadata, got"),
                std::string::npos);
  }
}

TEST_F(SafetensorsTest, WriterRefusesAHeaderThatReadersWould) {
  const std::string message =
      writeRefusal({}, {{"k", std::string(100'000'000, 'v')}});
  EXPECT_EQ(message, path + ": expected a header of at most 100000000 bytes, "
                            "got 100000032");
}

/// Makes every write past `bytes` of a file fail with EFBIG, a stand-in for a
/// full disk that works in any folder and for any user.
class FileSizeLimit {
public:
  explicit FileSizeLimit(rlim_t bytes)
      : oldHandler(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &oldLimit);
    const rlimit limit{bytes, oldLimit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &oldLimit);
    std::signal(SIGXFSZ, oldHandler);
  }

private:
  void (*oldHandler)(int);
  rlimit oldLimit;
};

TEST_F(SafetensorsTest, FailingWritesLeaveTheOldFile) {
  const std::string old(64, 'o'), large(1 << 20, 'n');
  roundTrip({entryOf("old", "U8", {64}, old)});
  const std::string before = readBytes(path);
  const std::pair<rlim_t, const char *> limits[] = {
      {0, ": cannot write the header: File too large"},
      {16, ": cannot write the header: File too large"},
      {1 << 16, ": cannot write tensor \"new\": File too large"}};
  for (const auto &[limit, message] : limits) {
    Status status;
    {
      FileSizeLimit scope(limit);
      status =
          writeSafetensors(path, {entryOf("new", "U8", {1 << 20}, large)}, {});
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), StatusCode::IoError);
    EXPECT_EQ(status.message(), path + message);
    EXPECT_EQ(readBytes(path), before);
    EXPECT_EQ(listFolder(), std::vector<std::string>{"model.safetensors"});
  }
}

TEST_F(SafetensorsTest, WritesToRegularFilesOnly) {
  const Status missing = writeSafetensors(folder + "/none/model", {}, {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.code(), StatusCode::NotFound);
  const Status directory = writeSafetensors(folder, {}, {});
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.message(),
            folder + ": expected a regular file, got a directory");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(writeSafetensors(path, {}, {}).ok());
  EXPECT_EQ(listFolder(), std::vector<std::string>{"model.safetensors"});
}

TEST_F(SafetensorsTest, ReplacesAFileWithoutWideningItsMode) {
  writeBytes(path, "anything");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  roundTrip({});
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SafetensorsTest, ConcurrentWritersNeverMix) {
  const std::string a(1 << 16, 'a'), b(1 << 16, 'b');
  const auto write = [&](const std::string &bytes) {
    for (int i = 0; i < 20; ++i)
      EXPECT_TRUE(
          writeSafetensors(path, {entryOf("t", "U8", {1 << 16}, bytes)}, {})
              .ok());
  };
  write(a);
  std::thread first(write, a), second(write, b);
  for (int i = 0; i < 50; ++i) {
    SafetensorsFile file;
    ASSERT_TRUE(SafetensorsFile::open(path, file).ok());
    const std::string bytes = bytesOf(*file.find("t"));
    EXPECT_TRUE(bytes == a || bytes == b);
  }
  first.join();
  second.join();
  EXPECT_EQ(listFolder(), std::vector<std::string>{"model.safetensors"});
}

} // namespace
