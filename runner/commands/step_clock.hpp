// Where predicted step times come from: the device table, or a calibration of this machine.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/devices/devices.hpp"
#include "runner/selection/calibration.hpp"
#include "runner/selection/choice.hpp"

namespace runner {

/// What measurements hold for: host name, CPU, cores.
std::string machine_of(const Facts& facts);
/// Whether CPU ranks that one supervisor starts talk through shared memory.
bool shares_memory(const Recipe& recipe);
/// What `runner doctor --calibrate` measured here; none, with a warning, where the ledger cannot be read.
std::vector<Calibration> calibrations_here(const Facts& facts);

class ClockSource {
 public:
  /// `calibrations`: of the machine whose CPUs the topology means. `shared_memory`: its ranks talk through that.
  ClockSource(const Topology& topology, std::vector<Calibration> calibrations, bool shared_memory)
      : topology_(topology), calibrations_(std::move(calibrations)), shared_memory_(shared_memory) {}
  ClockSource(const ClockSource&) = delete;

  /// nullptr where nothing is known. Stays valid as long as this.
  const Rates* rates(const Job& job, int threads) const;
  /// Refers to this. `threads`: of each CPU rank.
  StepClock clock(int threads) const;
  /// Of the job's kind: "peaks of h100-80g (...)", or why there are none.
  std::string describe(const Job& job, int threads) const;

 private:
  Topology topology_;
  std::vector<Calibration> calibrations_;
  bool shared_memory_;
  mutable std::map<std::string, std::optional<Rates>> known_;
};

}  // namespace runner
