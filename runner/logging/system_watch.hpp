// Records how busy the machine is while a run trains: the listener behind `logging.system_interval_s`.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/devices/system_reader.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// Reads the node of rank 0: the whole machine, the processes of the run on this node, and the GPUs of its ranks. The pauses between the
/// readings are 1, 2, 4 ... s, and at most Options::every. The readings go to the ledger (Ledger::system_samples). A thread reads,
/// because the GPU driver may answer late.
class SystemWatch : public RunListener {
 public:
  using OpenReader = std::function<std::unique_ptr<SystemReader>()>;
  struct Options {
    std::chrono::milliseconds every{10000};
    std::vector<WatchedGpu> gpus;
    int local_ranks = 1;   ///< ranks 0 to local_ranks - 1 are processes of this machine
    OpenReader open = {};  ///< in tests, another reader
  };
  SystemWatch(Ledger& ledger, Options options);
  ~SystemWatch() override;

  std::string title() const override { return "the record of CPU, memory and GPU use"; }
  void begin(const AttemptStart& attempt) override;
  void event(const std::string& kind, const nlohmann::json& fields) override;
  void tick() override;
  void end(const RunEnd& end) override;

  /// Ids of the processes that count as the run: this one, then its local ranks.
  std::vector<int64_t> processes() const;

 private:
  void tell_processes();
  struct Shared;
  Ledger& ledger_;
  Options options_;
  std::string run_;
  std::map<int, int64_t> processes_;  ///< rank -> process id
  std::shared_ptr<Shared> shared_;    ///< with the thread, which may outlive this object; null before begin()
};

}  // namespace runner
