// The sources of predicted step times: the device table, calibrations of this machine, earlier runs.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/devices/devices.hpp"
#include "runner/selection/calibration.hpp"
#include "runner/selection/choice.hpp"
#include "runner/selection/learning.hpp"

namespace runner {

/// The key of measurements of one machine: host name, CPU, cores.
std::string machine_of(const Facts& facts);
/// Whether CPU ranks of one supervisor communicate through shared memory.
bool shares_memory(const Recipe& recipe);

/// The ledger's data about step times on one machine.
struct Knowledge {
  std::string machine, build;
  std::vector<Calibration> calibrations;
  std::string disturbed;  ///< "the calibration of 2026-11-22 was disturbed (why)"; empty if none was
  std::vector<PastRun> runs;
};
/// The data for the machine with these facts. Empty, with a warning, if the ledger cannot be read.
Knowledge knowledge_here(const Facts& facts, const std::string& build);

class ClockSource {
 public:
  /// `shared_memory`: the CPU ranks of a node communicate through shared memory.
  ClockSource(const Topology& topology, Knowledge knowledge, bool shared_memory)
      : topology_(topology), knowledge_(std::move(knowledge)), shared_memory_(shared_memory) {}
  ClockSource(const ClockSource&) = delete;

  /// The rates for jobs of this kind; nullptr if unknown. Valid during the life of this object.
  const Rates* rates(const Job& job, int threads) const;
  /// The result refers to this object. `threads`: of each CPU rank.
  StepClock clock(int threads) const;
  /// The source of the rates for jobs of this kind, e.g. "peaks of h100-80g (...)", or why there are none.
  std::string describe(const Job& job, int threads) const;
  /// The number of earlier runs that the times for this kind of job are based on.
  size_t runs(const Job& job, int threads) const;
  Circumstances circumstances(const Job& job, int threads) const;

 private:
  /// nullptr if unknown.
  const LearnedRates* learned(const Job& job, int threads) const;
  std::optional<LearnedRates> learn(const Job& job, int threads) const;
  bool over_gloo(const Job& job) const;

  Topology topology_;
  Knowledge knowledge_;
  bool shared_memory_;
  mutable std::map<std::string, std::optional<LearnedRates>> known_;
};

}  // namespace runner
