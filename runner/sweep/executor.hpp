// Runs a sweep: trials on device slots, every decision in the ledger before it is acted on, nothing lost when killed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/ledger/sweeps.hpp"
#include "runner/sweep/slots.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner::sweep {

/// All are called from the thread that called execute().
struct ExecutorHooks {
  std::function<void(const TrialState& trial, const std::string& slot, bool again)> on_start = {};
  std::function<void(const TrialState& trial, double seconds)> on_end = {};
  std::function<void(const std::string& text)> on_note = {};
  std::function<void(const Search& search, size_t running)> on_tick = {};  ///< at least 5 times a second
};

struct Execution {
  std::string home;                 ///< of the ledger, absolute
  std::string program;              ///< `runner` itself
  std::string sweep;                ///< id; claimed by this process
  std::vector<int64_t> again = {};  ///< failed trials that are to be tried again
  std::vector<Slot> slots;
  ExecutorHooks hooks = {};
};

struct ExecutionEnd {
  std::string status;   ///< finished, failed (no slot is left), interrupted
  std::string message;  ///< why, where there is something to say
  int signal = 0;       ///< that interrupted it
};

/// Rebuilds the method from the sweep's history, finishes what the ledger knows to have ended meanwhile, runs again
/// what was interrupted (from its newest checkpoint, if there is one, under the same number), and then whatever the
/// method proposes.
///
/// A failed trial is an ended trial. A slot on which three trials in a row fail within a minute each, of classes that
/// blame_device(), is set aside. SIGINT, SIGTERM and SIGHUP stop the running trials (each writes a checkpoint) and
/// leave the sweep resumable; a second SIGINT kills them. Trials die with this process. Throws Error(environment) where
/// the ledger cannot be written or a trial cannot be started at all. Where the method fails (a script's error), running
/// trials are stopped as by a signal, and its error is thrown then: the sweep is left resumable.
ExecutionEnd execute(const SweepFile& sweep, Sweeps& store, const Execution& execution);

/// Repeats what the ledger keeps of a sweep. Throws Error(environment) as Search::replay() does.
void replay_history(Search& search, const Sweeps& store, const std::string& sweep);

}  // namespace runner::sweep
