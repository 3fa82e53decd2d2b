// The safetensors format: files match its specification, and a wrong header is refused with its fault.
#include "runner/checkpoint/safetensors.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>

#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// A file that follows the specification, without the writer.
std::string raw_file(const std::string& header, const std::string& data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i)));
  return file + header + data;
}

std::string open_message(const std::string& header, const std::string& data) {
  Folder folder;
  write_text(folder / "x.safetensors", raw_file(header, data));
  auto message = message_of([&] {
    try {
      SafetensorsFile file(folder / "x.safetensors");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      throw;
    }
  });
  auto at = message.find((folder / "x.safetensors").string());
  if (at != std::string::npos) message.replace(at, (folder / "x.safetensors").string().size(), "FILE");
  return message;
}

}  // namespace

TEST_CASE("a file made without the writer is read") {
  Folder folder;
  std::vector<float> values = {1.5f, -2.0f, 3.25f};
  std::string data(reinterpret_cast<const char*>(values.data()), 12);
  write_text(folder / "x.safetensors",
             raw_file(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[],"data_offsets":[12,13]},)"
                      R"("a":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}}   )",
                      data + "x"));
  SafetensorsFile file(folder / "x.safetensors");
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[0].shape == std::vector<int64_t>{3, 1});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(std::memcmp(file.data(*file.find("a")).data(), values.data(), 12) == 0);
  CHECK(file.find("b")->numel() == 1);
  CHECK(file.data(*file.find("b"))[0] == std::byte{'x'});
  CHECK(file.find("c") == nullptr);
}

TEST_CASE("a file is read back, with data at multiples of 64 bytes and the hash of its bytes") {
  Folder folder;
  std::vector<double> first = {1, 2, 3, 4, 5, 6};
  std::vector<uint16_t> second = {7, 8};
  std::vector<float> nothing;
  auto written = write_safetensors(folder / "x.safetensors",
                                   {{"first", "F64", {2, 3}, bytes_of(first)},
                                    {"empty", "F32", {0, 4}, bytes_of(nothing)},
                                    {"second", "BF16", {2}, bytes_of(second)}},
                                   {{"key", "value \"quoted\""}});
  std::string content = read_file(folder / "x.safetensors");
  CHECK(written.bytes == content.size());
  CHECK(written.xxh3 == xxh3_hex(content));
  CHECK((content.size() - 48 - 4) % 64 == 0);
  SafetensorsFile file(folder / "x.safetensors");
  CHECK(std::memcmp(file.data(*file.find("first")).data(), first.data(), 48) == 0);
  CHECK(std::memcmp(file.data(*file.find("second")).data(), second.data(), 4) == 0);
  CHECK(file.data(*file.find("empty")).empty());
  CHECK(file.metadata().at("key") == "value \"quoted\"");
}

TEST_CASE("a stream in pieces of any size gives the same file as one write") {
  Folder folder;
  std::vector<float> values(300'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  auto whole = write_safetensors(folder / "whole", {{"t", "F32", {300'000}, bytes_of(values)}});
  SafetensorsWriter writer(folder / "pieces", {{"t", "F32", {300'000}}});
  auto rest = bytes_of(values);
  for (size_t size = 1; !rest.empty(); size = size * 3 + 1) {
    auto piece = rest.first(std::min(size, rest.size()));
    writer.write(piece);
    rest = rest.subspan(piece.size());
  }
  CHECK(writer.finish().xxh3 == whole.xxh3);
  CHECK(read_file(folder / "whole") == read_file(folder / "pieces"));
}

TEST_CASE("an abandoned stream leaves no file") {
  Folder folder;
  std::vector<float> values(10);
  {
    SafetensorsWriter writer(folder / "x.safetensors", {{"t", "F32", {20}}});
    writer.write(bytes_of(values));
    CHECK_THROWS_AS(writer.finish(), std::logic_error);
    CHECK_THROWS_AS((writer.write(bytes_of(values)), writer.write(bytes_of(values))), std::logic_error);
  }
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("a full disk is reported with the file's name and leaves no file") {
  Folder folder;
  int report[2];
  REQUIRE(::pipe(report) == 0);
  pid_t pid = ::fork();
  if (pid == 0) {
    // A limit on file sizes fails like a full disk: part of the bytes are written, then write() gives an error.
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{3'000'000, 3'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::vector<float> values(1'000'000);
    auto message = message_of([&] {
      write_safetensors(folder / "x.safetensors", {{"t", "F32", {1'000'000}, bytes_of(values)}});
    });
    bool written = ::write(report[1], message.data(), message.size()) == static_cast<ssize_t>(message.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(report[1]);
  char text[4096];
  ssize_t size = ::read(report[0], text, sizeof text);
  ::close(report[0]);
  ::waitpid(pid, nullptr, 0);
  REQUIRE(size > 0);
  CHECK(std::string(text, static_cast<size_t>(size)) ==
        "cannot write " + (folder / "x.safetensors").string() + ": File too large");
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("a header that lies is refused with the fault") {
  CHECK(open_message("[]", "") == "FILE: the header is not a JSON object");
  CHECK(open_message("{\"a\":", "") == "FILE: the header is not a JSON object");
  CHECK(open_message("{\"a\":{\"dtype\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}}", "") ==
        "FILE: the header is not a JSON object");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}})", "1234") ==
        "FILE: the header is not a JSON object");
  CHECK(open_message(R"({"__metadata__":{"a":1}})", "") == "FILE: `__metadata__.a` is not a string");
  CHECK(open_message(R"({"__metadata__":3})", "") == "FILE: `__metadata__` is not a table");
  CHECK(open_message(R"({"a":3})", "") == "FILE: `a` is not a table");
  CHECK(open_message("{\"" + std::string(1 << 20, 'a') + "\":3}", "") ==
        "FILE: `" + std::string(80, 'a') + "...` is not a table");
  CHECK(
      open_message(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "1234") == "FILE: `a` occurs twice");
  CHECK(open_message(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: dtype \"F31\" cannot be read");
  CHECK(open_message(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: dtype (missing) cannot be read");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: shape is not a list of sizes");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: shape is not a list of sizes");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234") ==
        "FILE: `a`: data_offsets [4, 0] are not a range");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234") ==
        "FILE: `a`: data_offsets [0] are not a range");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: 4 bytes instead of the 8 of F32 [2]");
  CHECK(open_message(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234") ==
        "FILE: `a`: shape [4294967296, 4294967296] has too many elements");
  CHECK(open_message(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}})",
                     "1234") == "FILE: `a`: shape [18446744073709551615] has too many elements");
  CHECK(
      open_message(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          "1234") == "FILE: `b` overlaps the tensor before it by 2 bytes");
  CHECK(
      open_message(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          "1234") == "FILE: 1 bytes before `b` belong to no tensor");
  CHECK(open_message(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "1234") ==
        "FILE: 1 bytes after the last tensor belong to no tensor");
}

TEST_CASE("a shortened file is reported as truncated for every length") {
  const std::string header = R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})";  // 53 bytes
  REQUIRE(header.size() == 53);
  const std::string file = raw_file(header, "123456789");
  Folder folder;
  auto message_at = [&](size_t size) {
    write_text(folder / "x", file.substr(0, size));
    return message_of([&] { SafetensorsFile opened(folder / "x"); });
  };
  std::string path = (folder / "x").string();
  CHECK(message_at(0) == path + " is not a safetensors file: 0 bytes are too few for a header");
  CHECK(message_at(7) == path + " is not a safetensors file: 7 bytes are too few for a header");
  CHECK(message_at(60) == path + " is truncated: 60 of at least 61 bytes");
  CHECK(message_at(61) == path + " is truncated: 61 of 70 bytes");
  CHECK(message_at(69) == path + " is truncated: 69 of 70 bytes");
  CHECK(message_at(70) == "nothing was thrown");
  write_text(folder / "x", std::string(7, '\xff') + '\x7f' + "abc");
  CHECK(message_of([&] { SafetensorsFile opened(folder / "x"); }) ==
        path + " is not a safetensors file: a header of 9223372036854775807 bytes (at most 100000000 are allowed)");
}
