// The requests of a hook in one call, and how ranks agree on them at the end of the call.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/train/hooks/metrics.hpp"

namespace runner {

/// Requests of one call of a hook on this rank.
struct HookRequests {
  bool checkpoint = false, skip = false;
  std::optional<std::string> stop = {};  ///< the reason
  std::optional<double> lr = {};
  std::optional<int64_t> restored = {};  ///< step of the snapshot to restore
  std::function<void()> restore = {};
  struct Logged {
    Metrics::Named* metric;
    double value;
  };
  struct Synced : Logged {
    std::string sync;
  };
  std::vector<Logged> logged = {};
  std::vector<Synced> synced = {};  ///< exchanged between ranks before they are logged
};

/// The message of a rank to the others at the end of a call. Ranks compare lists of names by a hash (hash_of).
struct CallEnd {
  bool failed = false;
  bool stop = false, checkpoint = false, skip = false;
  bool parameters_written = false, gradients_written = false;
  std::optional<double> lr = {};
  int64_t synced = 0;       ///< number of values to log with a sync
  double synced_names = 0;  ///< hash of their names and syncs
  std::optional<int64_t> restored = {};
  double state_tensors = 0;  ///< hash of the names of tensors in states
  int64_t changes = 0;       ///< of parameters and gradients
  double changed = 0;        ///< hash of their names

  /// The bytes of the message as numbers, which ranks exchange without looking at them.
  std::vector<double> pack() const;
  static CallEnd unpack(const std::vector<double>& row);
};
inline constexpr size_t call_end_words = sizeof(CallEnd) / sizeof(double);  ///< numbers that pack() returns

/// Describes how the requests of ranks contradict each other; empty if they do not. `ends` is by rank.
std::string contradiction(const std::vector<CallEnd>& ends);

}  // namespace runner
