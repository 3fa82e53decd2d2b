// Places in logs against what a simple reading of the whole file finds.
#include "runner/ui/log_index.hpp"

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <random>

#include "tests/ledger/support.hpp"

namespace runner::ui {

namespace {

struct Log : LedgerFolder {
  std::string path = home() + ".log", text;
  Log() { write(""); }
  void write(const std::string& content) {
    text = content;
    std::ofstream(path, std::ios::binary) << text;
  }
  void append(const std::string& more) {
    text += more;
    std::ofstream(path, std::ios::binary | std::ios::app) << more;
  }
  Descriptor open() const { return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); }
};

/// Line begins, and behind the last one the end of the file.
std::vector<int64_t> begins_of(const std::string& text) {
  std::vector<int64_t> begins = {0};
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') begins.push_back(static_cast<int64_t>(i) + 1);
  return begins;
}

void check(const Log& log, LogIndex& index) {
  const Descriptor file = log.open();
  index.update(file);
  const auto begins = begins_of(log.text);
  const int64_t whole = std::ssize(begins) - 1;
  REQUIRE(index.end().byte == begins.back());
  REQUIRE(index.end().lines == whole);
  REQUIRE(index.size() == std::ssize(log.text));
  REQUIRE(index.lines() == whole + (begins.back() < std::ssize(log.text) ? 1 : 0));
  for (int64_t line = 0; line <= whole; line += std::max<int64_t>(1, whole / 50)) {
    const LogPlace by_line = index.after_lines(file, line),
                   by_byte = index.at_byte(file, begins[static_cast<size_t>(line)]);
    REQUIRE((by_line.byte == begins[static_cast<size_t>(line)] && by_line.lines == line));
    REQUIRE((by_byte.byte == by_line.byte && by_byte.lines == line));
  }
}

}  // namespace

TEST_CASE("lines of a log that grows by pieces of any size") {
  std::mt19937 random(3);
  Log log;
  LogIndex index;
  check(log, index);
  for (int i = 0; i < 60; ++i) {
    std::string more(std::uniform_int_distribution<size_t>(0, i % 10 == 9 ? 300'000 : 3000)(random), 'x');
    for (char& c : more)
      if (random() % (i % 7 == 6 ? 100'000 : 40) == 0) c = '\n';
    log.append(more);
    check(log, index);
  }
  CHECK(index.generation() == 0);
}

TEST_CASE("a log that was rewritten is counted anew") {
  Log log;
  LogIndex index;
  log.append(std::string(200'000, '\n') + "end\n");
  check(log, index);
  log.write("short\n");
  check(log, index);
  CHECK(index.generation() == 1);
  // As long as before, but with other text: as after its middle was removed and more was written.
  log.write("other\n" + std::string(100, 'y') + "\n");
  check(log, index);
  CHECK(index.generation() == 2);
  log.append("more\n");
  check(log, index);
  CHECK(index.generation() == 2);
}

TEST_CASE("a reader returns whole lines, and an unfinished one at the end") {
  Log log;
  log.write("one\r\n\n" + std::string(70'000, 'z') + "\nlast");
  const Descriptor file = log.open();
  LogReader reader(file, {});
  std::string line;
  REQUIRE(reader.read(line));
  CHECK(line == "one");
  REQUIRE(reader.read(line));
  CHECK(line.empty());
  REQUIRE(reader.read(line));
  CHECK(line == std::string(65'536, 'z'));
  CHECK_FALSE(reader.unfinished());
  const LogPlace before = reader.next();
  CHECK(before.byte == 6 + 70'001);
  CHECK(before.lines == 3);
  REQUIRE(reader.read(line));
  CHECK(line == "last");
  CHECK(reader.unfinished());
  CHECK(reader.next().byte == before.byte);
  CHECK_FALSE(reader.read(line));
}

}  // namespace runner::ui
