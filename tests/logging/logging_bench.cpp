// A worker for scripts/bench/logging: every 10 ms, it reports a step with many metrics, as rank 0 of a training does. It measures what
// this costs its own thread and process.
//
//     runner-worker ...    with BENCH_STEPS, BENCH_SCALARS (of a step) and BENCH_OUT, a file for the JSON result
#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/launch/events.hpp"

using namespace runner;
using nlohmann::json;

namespace {

constexpr std::chrono::milliseconds step_time{10};
constexpr int64_t of_trainer = 10;  // metrics of the event `step`; the others are those of a hook

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

/// CPU time of the calling thread.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double process_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void emit_step(EventSink& events, int64_t step, const std::vector<std::string>& names) {
  events.emit("step", {{"step", step},
                       {"epoch", 0},
                       {"loss", 1.0 / static_cast<double>(step)},
                       {"lr", 1e-3},
                       {"grad_norm", 0.5},
                       {"tokens", 4096},
                       {"trained", 4096 * step},
                       {"rows", 8},
                       {"seconds", 0.01},
                       {"train_seconds", 0.01 * static_cast<double>(step)},
                       {"data_wait_s", 0},
                       {"memory_bytes", 1 << 20},
                       {"skipped", false}});
  if (names.empty()) return;
  json values = json::object();
  for (size_t i = 0; i < names.size(); ++i) values[names[i]] = static_cast<double>(step) / static_cast<double>(i + 3);
  events.emit("metrics", {{"step", step}, {"values", std::move(values)}});
}

}  // namespace

int main() {
  const int64_t steps = number_from("BENCH_STEPS", 1000), scalars = number_from("BENCH_SCALARS", 100);
  std::vector<std::string> names;
  for (int64_t i = of_trainer; i < scalars; ++i) names.push_back(fmt::format("hook/scalar_{}", i));
  double wall = 0, thread = 0;
  double before = 0;
  {
    EventSink events(0);
    events.emit("ready", {{"pid", ::getpid()}, {"device", "cpu"}, {"threads", 1}, {"steps", steps}});
    before = process_seconds();
    auto next = std::chrono::steady_clock::now();
    for (int64_t step = 1; step <= steps; ++step) {
      std::this_thread::sleep_until(next += step_time);
      const double begun = steady_seconds(), thread_begun = thread_seconds();
      emit_step(events, step, names);
      thread += thread_seconds() - thread_begun;
      wall += steady_seconds() - begun;
    }
    events.emit("finished", {{"step", steps}, {"final_loss", 0.1}, {"tokens", 4096 * steps}, {"skipped_steps", 0}});
  }
  const double per_step = 1e6 / static_cast<double>(steps);
  write_file_atomic(std::getenv("BENCH_OUT"), json{{"emit_wall_us", wall * per_step},
                                                   {"emit_cpu_us", thread * per_step},
                                                   {"process_cpu_us", (process_seconds() - before) * per_step},
                                                   {"process_cpu_s", process_seconds()}}
                                                  .dump());
}
