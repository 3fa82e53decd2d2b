#include "runner/commands/step_clock.hpp"

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/variables.hpp"
#include "runner/ledger/calibrations.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

std::string machine_of(const Facts& facts) {
  return fmt::format("{}, {}, {} cores", facts.hostname, facts.cpu, facts.cores);
}

bool shares_memory(const Recipe& recipe) { return recipe.devices.process_group_backend.value_or("shm") == "shm"; }

std::vector<Calibration> calibrations_here(const Facts& facts) {
  std::vector<Calibration> list;
  try {
    for (const auto& row : calibrations(ledger_home(), machine_of(facts)))
      list.push_back({row.ranks, row.threads, facts.cores, row.time, row.points.get<std::vector<nlohmann::json>>()});
  } catch (const Error& error) {  // predictions of time are not worth a run; whoever needs the ledger itself will fail
    log::warning("no predicted times: {}", error.what());
  }
  return list;
}

const Rates* ClockSource::rates(const Job& job, int threads) const {
  auto key =
      fmt::format("{} {} {} {} {}", job.model->family, mode_of(job.precision), job.world_size, job.local_size, threads);
  auto [found, fresh] = known_.try_emplace(key);
  if (fresh && topology_.kind)
    found->second = rates_of(*topology_.kind, job.precision.compute, job.local_size);
  else if (fresh && !topology_.cuda && job.num_nodes == 1 && (shared_memory_ || job.world_size == 1))
    found->second = calibrated_rates(calibrations_, job.model->family, mode_of(job.precision), job.local_size, threads);
  return found->second ? &*found->second : nullptr;
}

StepClock ClockSource::clock(int threads) const {
  StepClock clock;
  clock.step_seconds = [this, threads](const Candidate& candidate) -> std::optional<double> {
    const Rates* known = rates(candidate.job, threads);
    if (!known) return std::nullopt;
    auto time = step_time(candidate, *known);
    return time ? std::optional(time->total()) : std::nullopt;
  };
  clock.error = [this, threads](const Job& job) {
    const Rates* known = rates(job, threads);
    return known ? known->error : 0.1;
  };
  clock.why_unknown = [this, threads](const Job& job) { return describe(job, threads); };
  return clock;
}

std::string ClockSource::describe(const Job& job, int threads) const {
  if (const Rates* known = rates(job, threads)) return known->source;
  if (topology_.cuda && !topology_.kind) return "not known: this device is not in the table of device kinds";
  if (topology_.cuda)
    return fmt::format("not known: the table of devices has no {} products of {}", mode_of(job.precision),
                       topology_.kind->name);
  if (job.num_nodes > 1) return "not known: several nodes of CPUs are not calibrated together";
  if (!shared_memory_) return "not known: what is calibrated are ranks that share memory, not ranks over Gloo";
  if (calibrations_.empty()) return "not known: `runner doctor --calibrate` measures this machine";
  std::vector<std::string> measured;
  for (const auto& one : calibrations_)
    measured.push_back(fmt::format("{} of {}", counted(one.ranks, "rank"), counted(one.threads, "thread")));
  return fmt::format("not known: this machine is calibrated for {}, and these are {} of {}, {} in {}",
                     join(measured, ", "), counted(job.local_size, "rank"), counted(threads, "thread"),
                     job.model->family, mode_of(job.precision));
}

}  // namespace runner
