// The event pipe: what EventSink writes, and how EventReader handles correct, wrong and incomplete lines.
#include "runner/launch/events.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <thread>

using namespace runner;
using nlohmann::json;

namespace {

struct Pipe {
  int ends[2];
  Pipe() { REQUIRE(::pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    close_reader();
    ::close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  std::string read_some() {
    char buffer[65536];
    ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    return {buffer, static_cast<size_t>(n > 0 ? n : 0)};
  }
};

}  // namespace

TEST_CASE("an event arrives with kind, rank and time, and with its numbers bit for bit") {
  Pipe pipe;
  EventSink sink(3, pipe.ends[1]);
  double loss = 0.1 + 0.2;
  sink.emit("step", {{"loss", loss}, {"step", 7}, {"rank", 99}});
  sink.flush();
  auto events = EventReader(3).feed(pipe.read_some());
  REQUIRE(events.size() == 1);
  CHECK(events[0]["event"] == "step");
  CHECK(events[0]["rank"] == 3);
  CHECK(events[0]["loss"].get<double>() == loss);
  CHECK(events[0]["time"].get<double>() > 1.6e9);
}

TEST_CASE("the writer thread makes the events of emit_soon in order, also without another event") {
  Pipe pipe;
  EventSink sink(0, pipe.ends[1]);
  auto made_in = std::this_thread::get_id();
  sink.emit_soon("metrics", [&] {
    made_in = std::this_thread::get_id();
    return json{{"step", 1}};
  });
  EventReader reader(0);
  auto events = reader.feed(pipe.read_some());  // blocks until the event arrives
  REQUIRE(events.size() == 1);
  CHECK(events[0]["event"] == "metrics");
  CHECK(made_in != std::this_thread::get_id());
  sink.emit_soon("metrics", [] { return json{{"step", 2}}; });
  sink.emit("step", {{"step", 3}});
  sink.emit_soon("metrics", [] { return json{{"step", 4}}; });
  sink.flush();
  events = reader.feed(pipe.read_some());
  REQUIRE(events.size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(events[static_cast<size_t>(i)]["step"] == i + 2);
}

TEST_CASE("NaN and infinities arrive unchanged") {
  Pipe pipe;
  EventSink sink(0, pipe.ends[1]);
  double infinity = std::numeric_limits<double>::infinity();
  sink.emit("step", {{"loss", std::nan("")}, {"grad_norm", -infinity}, {"lr", infinity}, {"reason", "nan"}});
  sink.flush();
  json event = EventReader(0).feed(pipe.read_some()).at(0);
  CHECK(std::isnan(event["loss"].get<double>()));
  CHECK(event["grad_norm"].get<double>() == -infinity);
  CHECK(event["lr"].get<double>() == infinity);
  CHECK(event["reason"] == "nan");
}

TEST_CASE("a message that is not UTF-8 is sent and throws nothing") {
  Pipe pipe;
  EventSink sink(0, pipe.ends[1]);
  sink.emit("failed", {{"message", "path \xff here"}});
  sink.flush();
  CHECK(EventReader(0).feed(pipe.read_some()).at(0)["message"] == "path \xef\xbf\xbd here");
}

TEST_CASE("emit never waits for the reader, and flush waits until all events are in the pipe") {
  Pipe pipe;
  constexpr int count = 5000;  // far more than fits into a pipe
  EventSink sink(0, pipe.ends[1]);
  for (int i = 0; i < count; ++i) sink.emit("step", {{"step", i}, {"padding", std::string(100, 'x')}});
  EventReader reader(0);  // emit() has returned although the pipe is full
  std::vector<json> events;
  std::thread consumer([&] {
    while (events.size() < count)
      for (auto& event : reader.feed(pipe.read_some())) events.push_back(event);
  });
  sink.flush();
  consumer.join();
  for (int i = 0; i < count; ++i) REQUIRE(events[static_cast<size_t>(i)]["step"] == i);
}

TEST_CASE("a closed reader neither ends the process nor blocks the writer") {
  Pipe pipe;
  ::signal(SIGPIPE, SIG_DFL);
  EventSink sink(0, pipe.ends[1]);
  pipe.close_reader();
  for (int i = 0; i < 5000; ++i) sink.emit("note", {{"padding", std::string(100, 'x')}});  // more than fits into a pipe
  CHECK_NOTHROW(sink.flush());
}

TEST_CASE("events that training repeats after a resume carry the step of the newest snapshot before them") {
  Pipe pipe;
  EventSink sink(0, pipe.ends[1]);
  sink.record("sample", {{"step", 3}});
  sink.snapshot_taken(4);
  sink.record("artifact", {{"step", 4}});
  sink.emit("note", {{"message", "x"}});
  sink.flush();
  sink.settle();  // returns although there is no answer
  auto events = EventReader(0).feed(pipe.read_some());
  REQUIRE(events.size() == 3);
  CHECK(events[0]["saved"] == 0);
  CHECK(events[1]["saved"] == 4);
  CHECK_FALSE(events[2].contains("saved"));
}

TEST_CASE("without a pipe events are dropped") {
  EventSink sink(0, -1);
  CHECK_NOTHROW(sink.emit("note"));
  CHECK_NOTHROW(sink.flush());
}

TEST_CASE("lines are reassembled from pieces of any size") {
  std::string text = R"({"event":"a","time":1.5})"
                     "\n\n"
                     R"({"event":"b","time":2})"
                     "\n";
  EventReader reader(2);
  std::vector<json> events;
  for (char c : text)
    for (auto& event : reader.feed({&c, 1})) events.push_back(event);
  REQUIRE(events.size() == 2);
  CHECK(events[0] == json{{"event", "a"}, {"time", 1.5}, {"rank", 2}});
  CHECK(events[1]["event"] == "b");
  CHECK(reader.finish().empty());
}

TEST_CASE("a line that is not an event becomes a note that quotes it") {
  EventReader reader(1);
  auto events = reader.feed("Segfault!\n[1]\n{\"event\":5}\n{\"event\":\"step\",\"time\":\"late\"}\n{\"event\":\"ste");
  REQUIRE(events.size() == 4);
  CHECK(events[0]["event"] == "note");
  CHECK(events[0]["message"] == "not an event: Segfault!");
  CHECK(events[0]["rank"] == 1);
  CHECK(events[1]["message"] == "not an event: [1]");
  CHECK(events[2]["message"] == "not an event: {\"event\":5}");
  CHECK(events[3]["event"] == "step");
  CHECK(events[3]["time"].is_number());
  auto rest = reader.finish();
  REQUIRE(rest.size() == 1);
  CHECK(rest[0]["message"] == "not an event: {\"event\":\"ste");
}

TEST_CASE("a line with more levels than any message has is no object") {
  for (const auto& [opens, closes] : {std::pair<std::string, std::string>{"{\"a\":", "}"}, {"[", "]"}}) {
    const auto nested = [&](int levels) {
      std::string line = "{\"a\":", end = "}";
      for (int i = 0; i < levels; ++i) line += opens, end = closes + end;
      return line + "1" + end;
    };
    CHECK(from_line(nested(50)).has_value());
    CHECK_FALSE(from_line(nested(100'000)).has_value());
  }
}

TEST_CASE("a line that is too long is quoted once and skipped up to its newline") {
  EventReader reader(0);
  std::vector<json> events;
  for (int i = 0; i < 40; ++i)
    for (auto& event : reader.feed(std::string(100'000, 'y'))) events.push_back(event);
  for (auto& event : reader.feed("tail\n{\"event\":\"a\"}\n")) events.push_back(event);
  REQUIRE(events.size() == 2);
  CHECK(events[0]["message"] == "not an event: " + std::string(200, 'y') + "...");
  CHECK(events[1]["event"] == "a");
}
