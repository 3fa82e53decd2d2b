// Small Parquet files that promise, or unpack to, more than a memory holds are refused with file and place.
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/limits.hpp"
#include "runner/data/parquet_records.hpp"
#include "tests/data/parquet_writer.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string little(uint32_t value) {
  std::string bytes(4, '\0');
  for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

/// A run of `count` equal values of one bit, as the encoding RLE has it.
std::string run_of(uint32_t count, char value) {
  std::string bytes;
  uint32_t head = count << 1;
  for (; head >= 0x80; head >>= 7) bytes += static_cast<char>(head | 0x80);
  bytes += static_cast<char>(head);
  return bytes + value;
}

std::string levels(const std::string& runs) { return little(static_cast<uint32_t>(runs.size())) + runs; }

const std::vector<ThriftStruct> one_text = {schema_group("schema", 1), schema_column("text", bytes_column)};

/// The texts of a file with one column.
std::vector<std::string> texts_of(const std::string& path) {
  const ParquetRecords file(path);
  std::vector<std::string> texts;
  for (const auto& part : file.parts(SIZE_MAX))
    file.for_each(part, [&](const JsonRecord& record, size_t) {
      texts.push_back(record.at("text").get<std::string>());
      return true;
    });
  return texts;
}

/// The first words of the error of reading `file`.
std::string refusal(const std::string& file) {
  const DataFolder folder;
  const auto path = folder.write("a.parquet", file);
  auto error = error_of([&] { texts_of(path); });
  if (const auto at = error.find(path); at != std::string::npos) error.replace(at, path.size(), "FILE");
  return error;
}

/// `rows` rows with the same text, which the file has once.
std::string repeated(const std::string& text, uint32_t rows) {
  const auto dictionary = dictionary_page(little(static_cast<uint32_t>(text.size())) + text, 1);
  const auto indices = '\1' + run_of(rows, '\0');
  const ColumnPages column{.pages = dictionary + data_page(indices, rows, 8, std::ssize(indices)),
                           .values = rows,
                           .unpacked = std::ssize(text),
                           .dictionary_bytes = std::ssize(dictionary)};
  return parquet_file(one_text, {row_group(column, rows)}, rows, column.pages);
}

}  // namespace

TEST_CASE("a file that the test has written itself is read") {
  const DataFolder folder;
  CHECK(texts_of(folder.write("a.parquet", repeated("twice", 2))) == std::vector<std::string>{"twice", "twice"});
}

TEST_CASE("columns of Parquet files are bounded in number and depth") {
  std::vector<ThriftStruct> wide = {schema_group("schema", parquet_fields_max)};
  for (int i = 0; i < parquet_fields_max; ++i) wide.push_back(schema_column("c" + std::to_string(i), int32_column));
  CHECK(refusal(parquet_file(wide, {}, 0, "")) ==
        "usage: FILE: it has 32769 columns and groups of columns; at most 32768 are allowed");
  std::vector<ThriftStruct> deep;
  for (int i = 0; i <= parquet_depth_max; ++i) deep.push_back(schema_group("g", 1));
  deep.push_back(schema_column("text", bytes_column));
  CHECK_THAT(refusal(parquet_file(deep, {}, 0, "")), ContainsSubstring("usage: FILE: ") && ContainsSubstring("depth"));
}

TEST_CASE("what a row group says about its size is bounded before it is read") {
  const auto file = [](const ColumnPages& column, int64_t rows) {
    return parquet_file(one_text, {row_group({}, 0), row_group(column, rows)}, rows, column.pages);
  };
  CHECK(refusal(file({}, int64_t{1} << 40)) ==
        "usage: FILE, row group 2: it has 1099511627776 rows; at most 268435456 are allowed");
  CHECK(refusal(file({.unpacked = int64_t{1} << 40}, 1)) ==
        "usage: FILE, row group 2: it has more than 64.0 GiB without compression, which is the most that is allowed");
  CHECK(refusal(file({.unpacked = -1}, 1)) ==
        "usage: FILE, row group 2: the file is damaged: column 1 has 0 bytes, and -1 without compression");
  const auto empty = ThriftStruct().structs(1, {}).number(2, 0).number(3, 1000);
  CHECK(refusal(parquet_file({schema_group("schema", 0)}, {empty}, 1000, "")) ==
        "usage: FILE: it has rows, but no column");
}

TEST_CASE("a page that says that it unpacks to 2 GiB is refused before the memory is taken") {
  constexpr int64_t gzip = 2;
  const ColumnPages column{.pages = data_page("x", 1, 0, INT32_MAX), .codec = gzip, .unpacked = 1000};
  CHECK(refusal(parquet_file(one_text, {row_group(column, 1)}, 1, column.pages)) ==
        "usage: FILE, row 1: the data need more than 2.00 GiB of memory at once, which is the most that is allowed");
}

TEST_CASE("a text that all rows share does not fill the memory") {
  struct rusage before {
  }, after{};
  ::getrusage(RUSAGE_SELF, &before);
  CHECK(refusal(repeated(std::string(16 << 20, 'a'), 1024)) ==
        "usage: FILE, row 1: the data need more than 2.00 GiB of memory at once, which is the most that is allowed");
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 3 << 20);  // KiB
}

TEST_CASE("a row with many names is bounded as JSON") {
  const std::string name(1 << 20, 'n');
  constexpr uint32_t items = 1100;
  const std::vector<ThriftStruct> schema = {schema_group("schema", 1),
                                            ThriftStruct().enumerated(3, 2).text(4, "list").enumerated(5, 1),
                                            schema_column(name, int32_column)};
  std::string content = levels(run_of(1, 0) + run_of(items - 1, 1)) + levels(run_of(items, 1));
  content.append(4 * items, '\0');
  const ColumnPages column{.type = int32_column,
                           .path = {"list", name},
                           .pages = data_page(content, items, 0, std::ssize(content)),
                           .values = items,
                           .unpacked = std::ssize(content)};
  CHECK(refusal(parquet_file(schema, {row_group(column, 1)}, 1, column.pages)) ==
        "usage: FILE, row 1, column `list`: a row has more than 1.00 GiB, which is the most that is allowed");
}
