// Runs a sweep: starts trials on device slots, and writes every decision to the ledger before acting on it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/ledger/sweeps.hpp"
#include "runner/sweep/slots.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner::sweep {

/// Callbacks. They are called from the thread that called execute().
struct ExecutorHooks {
  std::function<void(const TrialState& trial, const std::string& slot, bool again)> on_start = {};
  /// `message`: why it failed, or was pruned.
  std::function<void(const TrialState& trial, double seconds, const std::string& message)> on_end = {};
  std::function<void(const std::string& text)> on_note = {};
  std::function<void(const Search& search, size_t running)> on_tick = {};  ///< at least 5 times a second
};

struct Execution {
  std::string home;                 ///< of the ledger, absolute
  std::string program;              ///< `runner` itself
  std::string sweep;                ///< id; claimed by this process
  std::vector<int64_t> again = {};  ///< failed trials to try again
  std::vector<Slot> slots = {};
  ExecutorHooks hooks = {};
  /// The only trial that this process trains, of a sweep that several processes share (Sweeps::join()). It has been proposed.
  std::optional<int64_t> only = {};
};

struct ExecutionEnd {
  std::string status;   ///< finished, failed (no slot is left), interrupted
  std::string message;  ///< the reason, if there is one
  int signal = 0;       ///< the signal that interrupted the sweep
};

/// Rebuilds the method from the sweep's history, records trials that have ended meanwhile, continues interrupted trials
/// (under the same number, from their newest checkpoint if there is one), and then runs what the method proposes.
///
/// A failed trial counts as ended. A slot is no longer used after three consecutive trials fail on it within a minute
/// each, if blames_device() is true for their reasons. SIGINT, SIGTERM and SIGHUP stop the running trials (each writes a
/// checkpoint), and the sweep can be resumed; a second SIGINT kills them. SIGTSTP suspends the trials and then this
/// process. Trials end with this process. Throws Error(environment) if the ledger cannot be written or a trial cannot be
/// started. If the method fails (an error in a script), running trials are stopped as by a signal, and the error is
/// thrown; the sweep can be resumed.
ExecutionEnd execute(const SweepFile& sweep, Sweeps& store, const Execution& execution);

/// Replays the recorded history of a sweep. Throws Error(environment) as Search::replay() does.
void replay_history(Search& search, const Sweeps& store, const std::string& sweep);

}  // namespace runner::sweep
