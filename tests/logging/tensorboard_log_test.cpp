// Event files: checksums, and the bytes of records as the format defines them.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "runner/logging/tensorboard_log.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;
using runner::testing::LoggedRun;

namespace {

/// The events of a file. Checks lengths and checksums.
std::vector<std::string> events_of(const fs::path& path) {
  const auto bytes = read_file(path);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t sum = 0;
    std::memcpy(&length, &bytes[at], sizeof(length));
    std::memcpy(&sum, &bytes[at + 8], sizeof(sum));
    CHECK(sum == masked_checksum(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    std::memcpy(&sum, &bytes[at + 12 + length], sizeof(sum));
    CHECK(sum == masked_checksum(events.back()));
    at += 16 + length;
  }
  return events;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// The event without its wall time (field 1, eight bytes).
std::string without_time(const std::string& event) {
  CHECK(event[0] == '\x09');
  return event.substr(9);
}

double time_of(const std::string& event) {
  double time = 0;
  std::memcpy(&time, &event[1], sizeof(time));
  return time;
}

}  // namespace

TEST_CASE("the checksum is CRC-32C, masked") {
  // RFC 3720, B.4: "123456789" has CRC-32C 0xe3069283.
  const uint32_t sum = 0xe3069283u;
  CHECK(masked_checksum("123456789") == ((sum >> 15 | sum << 17) + 0xa282ead8u));
}

TEST_CASE("an attempt is a file: version, start, recipe once, then scalars") {
  LoggedRun logged;
  TensorBoardLog log(logged.folder.path / "tensorboard");
  log.begin(logged.attempt());
  log.points(logged.group({{"loss", 300, 1.5}, {"lr", 300, 0.25}}));
  auto files = files_in(log.place());
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename().string().starts_with("events.out.tfevents."));
  auto events = events_of(files[0]);
  REQUIRE(events.size() == 4);
  using namespace std::string_literals;
  CHECK(without_time(events[0]) == "\x10\x00\x1a\x0d"s + "brain.Event:2");
  CHECK(without_time(events[1]) == "\x10\x00\x3a\x02\x08\x01"s);  // step 0, session_log { status: START }
  CHECK(events[2].find("```toml\na = 1\n```") != std::string::npos);
  // step 300; summary { value { tag "loss", simple_value 1.5 } value { tag "lr", simple_value 0.25 } }
  CHECK(without_time(events[3]) ==
        "\x10\xac\x02\x2a\x18\x0a\x0b\x0a\x04loss\x15\x00\x00\xc0\x3f\x0a\x09\x0a\x02lr\x15\x00\x00\x80\x3e"s);
}

TEST_CASE("an attempt's file replaces those before it: it has all points of the ledger, and comes after them") {
  LoggedRun logged;
  for (int64_t step = 1; step <= 3; ++step) logged.group({{"loss", step, 0.5}});  // while this logger was off
  logged.group({{"early", -2, 0.5}, {"seconds", 2, 60}});
  TensorBoardLog log(logged.folder.path / "tensorboard");
  log.begin(logged.attempt(3));
  log.points(logged.group({{"final", 3, 9}}));
  logged.ledger.begin_attempt(logged.run, "resume", 2);
  TensorBoardLog resumed(log.place());
  resumed.begin(logged.attempt(2));
  resumed.begin(logged.attempt(2));
  const auto files = files_in(log.place());
  REQUIRE(files.size() == 3);  // within one second, by one process
  CHECK(events_of(files[0]).size() == 3 + 4 + 1);
  const auto events = events_of(files[2]);
  REQUIRE(events.size() == 3 + 3);
  using namespace std::string_literals;
  const auto minus_two = "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"s;
  CHECK(without_time(events[1]) == "\x10"s + minus_two + "\x3a\x02\x08\x01"s);  // everything before is dropped
  CHECK(without_time(events[3]).starts_with("\x10"s + minus_two));
  CHECK(without_time(events[4]).starts_with("\x10\x01"));
  CHECK(without_time(events[5]).starts_with("\x10\x02"));
  CHECK(time_of(events[5]) - time_of(events[4]) == 60);
  CHECK(std::ranges::none_of(files, [](const auto& file) { return file.filename().string().ends_with("tmp"); }));
}
