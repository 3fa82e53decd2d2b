// The side of runner in scripts/bench/ledger: writes points as the supervisor of a run does, and times reads by the Ledger class.
//
//     bench_ledger write HOME RUNS NAMES STEPS    a group of points for each step; the time until all are committed
//     bench_ledger last HOME FILTER COLUMNS REPEAT   the columns of the runs
//     bench_ledger curve HOME RUN NAME REPEAT     all points of one metric
//
// Each prints one JSON line. The other side, scripts/bench/ledger_peer, has the same values.
#include <cstdio>
#include <string>
#include <vector>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/ledger/ledger.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// The value of a metric at a step: no two are equal, and all digits of the number are in use.
double value_at(int64_t run, int64_t name, int64_t step) {
  return 1.0 / static_cast<double>(step + 1) + 0.1 * static_cast<double>(name) +
         1e-5 * static_cast<double>((7919 * step + 104729 * run) % 10007) / 3;
}

json write(const std::string& home, int64_t runs, int64_t names, int64_t steps) {
  Ledger ledger(home, Ledger::Mode::write);
  std::vector<std::string> metrics;
  for (int64_t name = 0; name < names; ++name) metrics.push_back("metric_" + std::to_string(name));
  std::vector<std::string> ids;
  double seconds = 0;
  for (int64_t run = 0; run < runs; ++run) {
    const auto id = ids.emplace_back(ledger.begin_run({.name = "bench-" + std::to_string(run),
                                                       .tags = {},
                                                       .notes = "",
                                                       .run_dir_root = home + "/runs",
                                                       .recipe_source = "",
                                                       .resolved = "",
                                                       .config = json::object(),
                                                       .origins = json::object(),
                                                       .plan = json::object(),
                                                       .strategy = "single",
                                                       .argv = {},
                                                       .build_id = "",
                                                       .git = nullptr,
                                                       .host = json::object(),
                                                       .sweep = ""}));
    ledger.begin_attempt(id, "start");
    const double begun = steady_seconds();
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<MetricPoint> points;
      for (int64_t name = 0; name < names; ++name)
        points.push_back({metrics[static_cast<size_t>(name)], step, value_at(run, name, step)});
      ledger.metrics(id, std::move(points));
    }
    ledger.flush();
    seconds += steady_seconds() - begun;
    ledger.finish_run(id, "finished", 0, "");
  }
  return {{"seconds", seconds}, {"points", runs * names * steps}, {"runs", ids}};
}

/// The seconds of each repetition. `read` returns how many values it has read.
template <typename Read>
json timed(int64_t repeat, Read read) {
  json seconds = json::array();
  size_t values = 0;
  for (int64_t i = 0; i < repeat; ++i) {
    const double begun = steady_seconds();
    values = read();
    seconds.push_back(steady_seconds() - begun);
  }
  return {{"seconds", seconds}, {"values", values}};
}

json last(const std::string& home, const std::string& chosen, const std::string& columns, int64_t repeat) {
  const Ledger ledger(home, Ledger::Mode::read);
  const auto wanted = parse_columns(columns);
  const auto filter = parse_filter(chosen);
  return timed(repeat, [&] {
    size_t values = 0;
    for (const auto& row : ledger.runs(filter, wanted))
      for (const auto& cell : row.cells) values += cell.is_number() ? 1 : 0;
    return values;
  });
}

json curve(const std::string& home, const std::string& run, const std::string& name, int64_t repeat) {
  const Ledger ledger(home, Ledger::Mode::read);
  return timed(repeat, [&] { return ledger.points(run, name).size(); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto number = [&](size_t i) { return std::stoll(words.at(i)); };
  try {
    json result;
    if (words.at(0) == "write")
      result = write(words.at(1), number(2), number(3), number(4));
    else if (words.at(0) == "last")
      result = last(words.at(1), words.at(2), words.at(3), number(4));
    else
      result = curve(words.at(1), words.at(2), words.at(3), number(4));
    std::printf("%s\n", result.dump().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_ledger: %s\n", error.what());
    return 1;
  }
}
