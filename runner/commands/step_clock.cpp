#include "runner/commands/step_clock.hpp"

#include <fmt/chrono.h>

#include <cmath>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/calibrations.hpp"
#include "runner/ledger/ledger.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

constexpr int runs_most = 300;

void add_calibrations(Knowledge& knowledge, const Facts& facts) {
  double newest = 0;  // of the disturbed ones
  for (const auto& row : calibrations(ledger_home(), knowledge.machine)) {
    if (row.disturbed.empty())
      knowledge.calibrations.push_back(
          {row.ranks, row.threads, facts.cores, row.time, row.points.get<std::vector<nlohmann::json>>()});
    else if (row.time > std::exchange(newest, std::max(newest, row.time)))
      knowledge.disturbed = fmt::format("the calibration of {:%Y-%m-%d} was disturbed ({})",
                                        fmt::gmtime(static_cast<std::time_t>(row.time)), row.disturbed);
  }
}

void add_runs(Knowledge& knowledge) {
  for (const auto& run : timed_runs(ledger_home(), runs_most))
    if (auto load = StepLoad::from_json(run.step.at("load"))) {
      // Lost CPU time made the steps longer by up to this fraction, which is added to the uncertainty.
      const double lost = std::min(run.lost, 0.9), longer = lost / (1 - lost);
      knowledge.runs.push_back({Circumstances::from_json(run.step.at("where")), std::move(*load), run.seconds,
                                std::hypot(run.spread, longer)});
    }
}

/// "cpu with XLA", or "XLA, libtpu.so" with the plug-in for other devices.
std::string xla_devices(const Job& job) {
  const auto plugin = plugin_of_devices(job.options);
  return plugin.empty() ? "cpu with XLA" : "XLA, " + fs::path(plugin).filename().string();
}

}  // namespace

std::string machine_of(const Facts& facts) {
  return fmt::format("{}, {}, {} cores", facts.hostname, facts.cpu, facts.cores);
}

bool shares_memory(const Recipe& recipe) { return recipe.devices.process_group_backend.value_or("shm") == "shm"; }

Knowledge knowledge_here(const Facts& facts, const std::string& build) {
  Knowledge knowledge{.machine = machine_of(facts), .build = build, .calibrations = {}, .disturbed = {}, .runs = {}};
  try {
    add_calibrations(knowledge, facts);
    add_runs(knowledge);
  } catch (const std::exception& error) {  // a run does not need predicted times
    log::warning("no predicted times: {}", error.what());
    knowledge.calibrations.clear();
    knowledge.runs.clear();
  }
  return knowledge;
}

bool ClockSource::over_gloo(const Job& job) const {
  return !topology_.on_devices() && (job.num_nodes > 1 || (!shared_memory_ && job.world_size() > 1));
}

Circumstances ClockSource::circumstances(const Job& job, int threads) const {
  const std::string device = topology_.kind                      ? topology_.kind->name
                             : topology_.on_devices()            ? "another " + topology_.accelerator.noun()
                             : !job.accelerator.platform.empty() ? xla_devices(job)
                             : over_gloo(job)                    ? "cpu over Gloo"
                                                                 : "cpu";
  return {.machine = knowledge_.machine,
          .device = device,
          .build = knowledge_.build,
          .family = job.model->family,
          .precision = mode_of(job.precision) + (job.model->converts() ? ", by a plug-in" : ""),
          .local_size = job.local_size,
          .num_nodes = job.num_nodes,
          .threads = threads};
}

std::optional<LearnedRates> ClockSource::learn(const Job& job, int threads) const {
  const Circumstances here = circumstances(job, threads);
  std::optional<Rates> base;
  if (topology_.kind)
    base = rates_of(*topology_.kind, job.precision.compute, job.local_size);
  else if (!topology_.on_devices() && !over_gloo(job) && job.accelerator.platform.empty())
    base = calibrated_rates(knowledge_.calibrations, here.family, mode_of(job.precision), job.local_size, threads);
  if (base) return LearnedRates(std::move(*base), here, knowledge_.runs);
  if (topology_.on_devices()) return std::nullopt;
  // Without a calibration, earlier runs are the only source.
  LearnedRates learned(guessed_cpu_rates(job.local_size, threads, topology_.cores), here, knowledge_.runs);
  return learned.runs() > 0 ? std::optional(std::move(learned)) : std::nullopt;
}

const LearnedRates* ClockSource::learned(const Job& job, int threads) const {
  auto [found, fresh] = known_.try_emplace(circumstances(job, threads).to_json().dump());
  if (fresh) found->second = learn(job, threads);
  return found->second ? &*found->second : nullptr;
}

const Rates* ClockSource::rates(const Job& job, int threads) const {
  const LearnedRates* known = learned(job, threads);
  return known ? &known->rates() : nullptr;
}

size_t ClockSource::runs(const Job& job, int threads) const {
  const LearnedRates* known = learned(job, threads);
  return known ? known->runs() : 0;
}

StepClock ClockSource::clock(int threads) const {
  StepClock clock;
  clock.rates = [this, threads](const Job& job) { return rates(job, threads); };
  clock.step_time = [this, threads](const Candidate& candidate) -> std::optional<StepTime> {
    const Rates* known = rates(candidate.job, threads);
    const auto load = known ? step_load(candidate) : std::nullopt;
    return load ? step_time(*load, *known) : std::nullopt;
  };
  clock.error = [this, threads](const Job& job, const StepTime& time) { return learned(job, threads)->error(time); };
  clock.why_unknown = [this, threads](const Job& job) { return describe(job, threads); };
  return clock;
}

std::string ClockSource::describe(const Job& job, int threads) const {
  if (const LearnedRates* known = learned(job, threads)) {
    const std::string& source = known->rates().source;
    return known->runs() == 0 ? source
                              : fmt::format("{}, corrected by {}", source, counted(known->runs(), "earlier run"));
  }
  if (topology_.on_devices() && !topology_.kind) return "not known: this device is not in the table of device kinds";
  if (topology_.on_devices())
    return fmt::format("not known: the device table has no speed of {} products for {}", mode_of(job.precision),
                       topology_.kind->name);
  if (!job.accelerator.platform.empty())
    return "not known: calibrations do not cover steps that XLA compiles, and no such run is recorded";
  if (job.num_nodes > 1)
    return "not known: calibrations do not cover CPU ranks on several nodes, and no such run is recorded";
  if (over_gloo(job))
    return "not known: calibrations do not cover ranks that communicate over Gloo, and no such run is recorded";
  if (knowledge_.calibrations.empty() && !knowledge_.disturbed.empty())
    return fmt::format("not known: {}. Run `runner doctor --calibrate` again when the machine is quiet",
                       knowledge_.disturbed);
  if (knowledge_.calibrations.empty())
    return "not known: `runner doctor --calibrate` measures this machine; finished runs also give predictions";
  std::vector<std::string> measured;
  for (const auto& one : knowledge_.calibrations)
    measured.push_back(fmt::format("{} of {}", counted(one.ranks, "rank"), counted(one.threads, "thread")));
  return fmt::format("not known: this machine is calibrated for {}, but this job has {} of {}, {} in {}",
                     join(measured, ", "), counted(job.local_size, "rank"), counted(threads, "thread"),
                     job.model->family, mode_of(job.precision));
}

}  // namespace runner
