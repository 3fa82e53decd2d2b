// Where predicted step times come from: the device table, a calibration of this machine, earlier runs.
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

/// What measurements hold for: host name, CPU, cores.
std::string machine_of(const Facts& facts);
/// Whether CPU ranks that one supervisor starts talk through shared memory.
bool shares_memory(const Recipe& recipe);

/// What the ledger knows about step times on one machine.
struct Knowledge {
  std::string machine, build;
  std::vector<Calibration> calibrations;
  std::string disturbed;  ///< "the calibration of 2026-11-22 was disturbed (why)", of the newest; empty: none
  std::vector<PastRun> runs;
};
/// Of the machine with these facts. Empty, with a warning, where the ledger cannot be read.
Knowledge knowledge_here(const Facts& facts, const std::string& build);

class ClockSource {
 public:
  /// `shared_memory`: the CPU ranks of a node talk through that.
  ClockSource(const Topology& topology, Knowledge knowledge, bool shared_memory)
      : topology_(topology), knowledge_(std::move(knowledge)), shared_memory_(shared_memory) {}
  ClockSource(const ClockSource&) = delete;

  /// nullptr where nothing is known. Stays valid as long as this.
  const Rates* rates(const Job& job, int threads) const;
  /// Refers to this. `threads`: of each CPU rank.
  StepClock clock(int threads) const;
  /// Of the job's kind: "peaks of h100-80g (...)", or why there are none.
  std::string describe(const Job& job, int threads) const;
  /// Number of earlier runs behind the job's times.
  size_t runs(const Job& job, int threads) const;
  Circumstances circumstances(const Job& job, int threads) const;

 private:
  /// nullptr where nothing is known.
  const LearnedRates* learned(const Job& job, int threads) const;
  std::optional<LearnedRates> learn(const Job& job, int threads) const;
  bool over_gloo(const Job& job) const;

  Topology topology_;
  Knowledge knowledge_;
  bool shared_memory_;
  mutable std::map<std::string, std::optional<LearnedRates>> known_;
};

}  // namespace runner
