// Totals of nested spans.
#include "runner/base/span_recorder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

using namespace runner;

namespace {

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

double seconds(const std::map<SpanName, SpanRecorder::Total>& totals, const SpanName& name, bool own = false) {
  const auto& total = totals.at(name);
  return static_cast<double>(own ? total.own_nanoseconds : total.nanoseconds) * 1e-9;
}

const SpanName step{Phase::step, "step"}, forward{Phase::forward, "forward", 0},
    gather{Phase::collective, "gather", -1, 0};

}  // namespace

TEST_CASE("rank 16: own times of the spans of a step add up to the step", "[rank16]") {
  SpanRecorder recorder;
  {
    const SpanScope outer(&recorder, step);
    const SpanScope middle(&recorder, forward);
    pause(4);
    const SpanScope inner(&recorder, gather);
    recorder.collective("all_gather", 100);
    recorder.collective("all_gather", 20);
    pause(8);
  }
  const auto totals = recorder.totals();
  REQUIRE(totals.size() == 3);
  int64_t own = 0;
  for (const auto& [name, total] : totals) own += total.own_nanoseconds;
  CHECK(own == totals.at(step).nanoseconds);
  CHECK(seconds(totals, forward) >= 0.012);
  CHECK(seconds(totals, forward, true) >= 0.004);
  CHECK(seconds(totals, forward, true) < seconds(totals, forward) - 0.007);
  CHECK(totals.at(gather).bytes == 120);
  CHECK(totals.at(forward).bytes == 0);
}

TEST_CASE("rank 16: validation and its forward are not parts of a step", "[rank16]") {
  SpanRecorder recorder;
  {
    const SpanScope outer(&recorder, {Phase::validation, "validation"});
    const SpanScope inner(&recorder, forward);
    pause(2);
  }
  { const SpanScope alone(&recorder, forward); }
  const auto totals = recorder.totals();
  REQUIRE(totals.size() == 1);
  CHECK(seconds(totals, {Phase::validation, "validation"}, true) >= 0.002);
}

TEST_CASE("rank 16: spans are kept only when asked, with their thread and step; other threads add nothing to totals",
          "[rank16]") {
  SpanRecorder recorder;
  { const SpanScope before(&recorder, step); }
  recorder.keep_spans(true);
  recorder.set_step(7);
  {
    const SpanScope here(&recorder, step);
    std::thread([&] { const SpanScope there(&recorder, {Phase::update, "update", -1, 3}); }).join();
  }
  const auto spans = recorder.spans();
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].thread == 1);
  CHECK(spans[0].step == 7);
  CHECK(spans[1].thread == 0);
  CHECK(spans[1].begin <= spans[0].begin);
  CHECK(recorder.totals().size() == 1);
  recorder.reset_totals();
  CHECK(recorder.totals().empty());
}

TEST_CASE("rank 16: the device is waited for at the end of computation, and a null recorder does nothing", "[rank16]") {
  int waits = 0;
  SpanRecorder recorder([&] { ++waits; });
  { const SpanScope span(&recorder, forward); }
  { const SpanScope span(&recorder, {Phase::data, "wait for data"}); }
  CHECK(waits == 1);
  { const SpanScope span(nullptr, forward); }
  CHECK(waits == 1);
}
