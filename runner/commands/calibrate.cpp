#include "runner/commands/calibrate.hpp"

#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/ledger/calibrations.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/table.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner {

namespace {

constexpr double all_seconds = 40;  ///< may be exceeded, because each shape is measured a minimum number of times

/// The numbers of ranks to measure: powers of two up to the number of cores, at most eight.
std::vector<int> rank_counts(int cores) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= std::min(cores, 8); ranks *= 2) counts.push_back(ranks);
  return counts;
}

struct Measured {
  Calibration calibration;
  std::string disturbed;  ///< why it cannot be used; empty if it can
};

/// Runs the ranks and returns what rank 0 measured.
Measured measure(int ranks, int threads, int cores, double seconds, const fs::path& logs) {
  Measured measured{.calibration = {.ranks = ranks, .threads = threads, .cores = cores, .time = wall_seconds()},
                    .disturbed = "the ranks reported no verdict"};
  auto& points = measured.calibration.points;
  WorkerGroup group;
  group.worker = worker_binary();
  group.arguments = {"--calibrate", fmt::format("{}", seconds)};
  group.local_size = group.world_size = ranks;
  auto text = std::to_string(threads);
  group.environment = {{"OMP_NUM_THREADS", text}, {"MKL_NUM_THREADS", text}, {"OMP_WAIT_POLICY", "passive"}};
  group.log_dir = logs.string();
  if (ranks > 1) group.shm_bytes = static_cast<int64_t>(shm_segment_bytes(ranks));
  SupervisorHooks hooks;
  hooks.on_event = [&](const nlohmann::json& event) {
    if (event.value("event", "") != "calibration") return;
    if (event.at("what") == "verdict")
      measured.disturbed = event.at("disturbed");
    else
      points.push_back(event);
  };
  hooks.on_tick = [] {};
  Outcome outcome = supervise(group, hooks);
  if (outcome.code != ExitCode::done) throw Error(outcome.code, "calibration: " + outcome.first_cause);
  for (auto& point : points)
    for (const char* key : {"event", "rank", "time"}) point.erase(key);
  return measured;
}

/// One entry for each family and precision: the fitted rates and their errors on the measured steps.
nlohmann::json fits_of(const Calibration& calibration) {
  auto list = nlohmann::json::array();
  for (const char* family : {"gpt", "llama"})
    for (const char* precision : {"32-true", "bf16-mixed"}) {
      auto steps = steps_of(calibration, family, precision);
      if (steps.size() < least_steps) continue;
      Fit fit = fit_rates(steps);
      nlohmann::json rates;
      for (size_t kind = 0; kind < work_kinds; ++kind) rates[name_of(static_cast<Work>(kind))] = fit.seconds[kind];
      list.push_back({{"family", family},
                      {"precision", precision},
                      {"seconds_for_one", rates},
                      {"median_error", fit.median_error},
                      {"worst_error", fit.worst_error}});
    }
  return list;
}

void print(const Calibration& calibration) {
  std::printf("%d rank(s) of %d thread(s)\n", calibration.ranks, calibration.threads);
  std::vector<std::vector<std::string>> rows;
  for (const auto& point : calibration.points) {
    if (point.at("what") == "product")
      rows.push_back({fmt::format("  matrix product, {} x {} x {}", point.at("rows").get<int64_t>(),
                                  point.at("width").get<int64_t>(), point.at("width").get<int64_t>()),
                      format_count(point.at("flops_per_s").get<double>()) + "FLOP/s"});
    else if (point.at("what") == "copy")
      rows.push_back({"  copy", format_bytes(point.at("bytes_per_s").get<double>()) + "/s"});
    else if (point.at("what") == "collective")
      rows.push_back(
          {fmt::format("  {}, {}", point.at("name").get<std::string>(), format_bytes(point.at("bytes").get<double>())),
           fmt::format("{:.3g} ms", 1000 * point.at("seconds").get<double>())});
  }
  auto fits = fits_of(calibration);
  for (const auto& fit : fits)
    rows.push_back(
        {fmt::format("  steps of {} in {}", fit.at("family").get<std::string>(),
                     fit.at("precision").get<std::string>()),
         fmt::format("explained to {:.1f} % at the median, {:.1f} % at worst",
                     100 * fit.at("median_error").get<double>(), 100 * fit.at("worst_error").get<double>())});
  std::printf("%s", format_table({{""}, {""}}, rows).c_str());
}

}  // namespace

ExitCode calibrate(const Facts& facts, bool json) {
  auto counts = rank_counts(facts.cores);
  fs::path home = ledger_home(), logs = home / "calibration-logs";
  auto all = nlohmann::json::array();
  bool settled = true;
  for (int ranks : counts) {
    int threads = facts.cores / ranks;
    double seconds = all_seconds / static_cast<double>(counts.size());
    log::info("measuring {} of {}, about {:.0f} s", counted(ranks, "rank"), counted(threads, "thread"), seconds);
    auto [calibration, disturbed] = measure(ranks, threads, facts.cores, seconds, logs);
    keep_calibration(home.string(),
                     {.time = calibration.time,
                      .machine = machine_of(facts),
                      .ranks = ranks,
                      .threads = threads,
                      .build_id = build_id(),
                      .points = disturbed.empty() ? nlohmann::json(calibration.points) : nlohmann::json::array(),
                      .disturbed = disturbed});
    settled &= disturbed.empty();
    if (!disturbed.empty())
      log::warning("disturbed, and not used: {}. Run `runner doctor --calibrate` again when the machine is quiet",
                   disturbed);
    if (json)
      all.push_back({{"ranks", ranks},
                     {"threads", threads},
                     {"points", calibration.points},
                     {"fits", fits_of(calibration)},
                     {"disturbed", disturbed.empty() ? nlohmann::json() : nlohmann::json(disturbed)}});
    else if (disturbed.empty())
      print(calibration);
  }
  fs::remove_all(logs);
  if (json) print_json(nlohmann::json{{"schema", 1}, {"machine", machine_of(facts)}, {"calibrations", all}});
  return settled ? ExitCode::done : ExitCode::environment;
}

}  // namespace runner
