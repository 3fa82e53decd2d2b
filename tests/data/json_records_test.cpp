// Files of JSON records: lines and arrays, parts, and the places of mistakes.
#include <catch2/catch_test_macros.hpp>

#include "runner/data/json_records.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

/// The records of all parts of about `bytes` each, as text.
std::vector<std::string> records_of(const std::string& path, size_t bytes = 1 << 20) {
  const JsonRecords file(path);
  std::vector<std::string> records;
  for (const auto& part : file.parts(bytes))
    file.for_each(part, [&](const JsonRecord& record, size_t end) {
      CHECK(end <= part.end);
      records.push_back(record.dump());
      return true;
    });
  return records;
}

std::string record_error(const DataFolder& folder, std::string_view content) {
  const auto path = folder.write("bad.jsonl", content);
  auto message = error_of([&] { records_of(path); });
  const auto at = message.find(path);
  return at == std::string::npos ? message : message.replace(at, path.size(), "FILE");
}

}  // namespace

TEST_CASE("records are lines, with empty lines, a byte order mark and the line ends of Windows") {
  DataFolder folder;
  const std::vector<std::string> expected{R"({"b":1,"a":2})", R"({"text":"x\ny"})", R"({"text":"é"})"};
  CHECK(records_of(folder.write("a.jsonl", "{\"b\": 1, \"a\": 2}\n{\"text\": \"x\\ny\"}\n{\"text\": \"é\"}\n")) ==
        expected);
  CHECK(records_of(folder.write("b.jsonl",
                                "\xef\xbb\xbf\r\n{\"b\": 1, \"a\": 2}\r\n\r\n  {\"text\": \"x\\ny\"} \r\n"
                                "{\"text\": \"é\"}")) == expected);
}

TEST_CASE("records are the elements of one array, on any lines") {
  DataFolder folder;
  const auto path =
      folder.write("a.json", "\n[ {\"text\": \"a]}\\\\\\\"{[\"},\n {\n\"text\"\n:[1, {\"x\": [2]}]\n}  , {}\n]\n");
  CHECK(records_of(path) == std::vector<std::string>{R"({"text":"a]}\\\"{["})", R"({"text":[1,{"x":[2]}]})", "{}"});
  CHECK(records_of(folder.write("empty.json", "[]")).empty());
}

TEST_CASE("parts of any size have the same records, each once") {
  DataFolder folder;
  std::string lines, array = "[";
  std::vector<std::string> expected;
  for (int i = 0; i < 200; ++i) {
    expected.push_back(fmt::format(R"({{"text":"{}"}})", std::string(static_cast<size_t>(i % 13), 'x')));
    lines += expected.back() + (i % 7 == 0 ? "\n\n" : "\n");
    array += expected.back() + (i == 199 ? "]" : ", ");
  }
  for (const auto& path : {folder.write("a.jsonl", lines), folder.write("a.json", array)})
    for (size_t bytes : {1, 2, 10, 17, 100, 1000, 100000}) {
      INFO(path << " in parts of " << bytes);
      CHECK(records_of(path, bytes) == expected);
      const auto parts = JsonRecords(path).parts(bytes);
      CHECK((bytes == 100000) == (parts.size() == 1));
      for (size_t i = 1; i < parts.size(); ++i) CHECK(parts[i].begin == parts[i - 1].end);
    }
}

TEST_CASE("mistakes in records name file, line and column") {
  DataFolder folder;
  CHECK(record_error(folder, "{\"text\": \"a\"}\n{\"text\": nan}\n") ==
        "usage: FILE:2:11: not JSON: syntax error while parsing value - invalid literal; last read: '\"text\": na'");
  CHECK(record_error(folder, "{\n  \"text\": \"a\"\n}\n") ==
        "usage: FILE:1:1: not JSON: syntax error while parsing object key - unexpected end of input; expected string "
        "literal; each record must be on one line, or all of them in one array");
  CHECK(record_error(folder, "{\"text\": \"a\"}\n\n\"text\"\n") ==
        "usage: FILE:3: a record must be an object with named columns, {\"text\": ...}; this one is a string");
  CHECK(record_error(folder, "{\"text\": \"\xff\"}\n") ==
        "usage: FILE:1:11: not JSON: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; last "
        "read: '\"\xff'");
  CHECK(record_error(folder, "{\"n\": 1e999}\n{}\n7\n{\"n\": 1e999}\n") ==
        "usage: FILE:1: not JSON: number overflow parsing '1e999' (and 2 more rows: 3, 4)");
  std::string many;
  for (int i = 0; i < 20; ++i) many += "{\"n\": 1e999}\n";
  CHECK(record_error(folder, many) ==
        "usage: FILE:1: not JSON: number overflow parsing '1e999' (and at least 10 more rows: 2, 3, 4, 5, 6, 7, 8, 9, "
        "10, 11)");
  CHECK(record_error(folder, "{\"text\": \"a\"}\n{\"n\": 1e999}\n") ==
        "usage: FILE:2: not JSON: number overflow parsing '1e999'");
  CHECK(record_error(folder, "{}\n{\"text\": \"" + std::string(64 << 20, 'a') + "\"}\n") ==
        "usage: FILE:2: a record of 64.0 MiB; at most 64.0 MiB are read");
  CHECK(record_error(folder, "[{\"text\": \"a\"},\n") ==
        "usage: FILE:1: the array that begins on this line has no end; is the file cut off?");
  CHECK(record_error(folder, "[{\"text\": \"a\"},\n 7]") ==
        "usage: FILE:2: a record must be an object with named columns, {\"text\": ...}; this one is a number");
}

TEST_CASE("the elements of an array have one comma between them") {
  DataFolder folder;
  CHECK(record_error(folder, "[{\"text\": \"a\"}\n {\"text\": \"b\"}]") ==
        "usage: FILE:2:2: not JSON: a comma is missing between two elements of the array");
  CHECK(record_error(folder, "[{\"text\": \"a\"}{}]") ==
        "usage: FILE:1:15: not JSON: a comma is missing between two elements of the array");
  CHECK(record_error(folder, "[{\"text\": \"a\"},, {}]") ==
        "usage: FILE:1:15: not JSON: there is no element behind this comma");
  CHECK(record_error(folder, "[{\"text\": \"a\"},\n]") ==
        "usage: FILE:1:15: not JSON: there is no element behind this comma");
  CHECK(record_error(folder, "[, {\"text\": \"a\"}]") ==
        "usage: FILE:1:2: not JSON: there is no element in front of this comma");
  // Also where a file is read in small parts, and with much white space at the end.
  const auto path = folder.write("b.json", "[{},{}" + std::string(50, ' ') + "]");
  for (size_t bytes : {1, 3, 100}) CHECK(records_of(path, bytes) == std::vector<std::string>{"{}", "{}"});
}
