// The checkpoints of a run in a second place (plugins.checkpoint_io): stores those of the run's folder, removes surplus ones, and brings
// back a newer one than the folder has.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/plugins/parts.hpp"

namespace runner {

/// Any thread may call it. Calls of the plug-in do not overlap: a call waits until the one of another thread has ended.
///
/// RUN/stored.json lists what is stored, with the hash of each manifest. So the next process of the run stores what a killed one has not,
/// also a checkpoint that replaced another one of its step. If the file is lost, everything is stored again.
class CheckpointStore {
 public:
  /// `file`: of the plug-in, for messages.
  CheckpointStore(std::unique_ptr<parts::CheckpointIO> io, std::string file);
  /// Call it before the other functions; a second call does nothing. `run`: the id of the run. `monitor`: checkpoint.monitor.
  void open_run(const std::string& run, const fs::path& run_dir, const std::string& monitor);
  const std::string& file() const { return file_; }
  /// Receives notes for the user: names in the store that are no names of checkpoints.
  void set_note(std::function<void(const std::string&)> note);

  struct Pass {
    std::string failure = {};   ///< the first one, with function, run, checkpoint and reason; empty: none
    bool newest_stored = true;  ///< whether the newest checkpoint of the folder is stored, or there is none
  };
  /// Stores the checkpoints of the folder that are not stored and not given up, in the order of publication. Then removes the stored ones
  /// that `rule` does not keep: it counts stored checkpoints only, so none is removed before a newer one is stored. A checkpoint that was
  /// removed from the folder before its turn is not stored. Does not throw. `begins` is called with the name of each checkpoint before it
  /// is stored; `stop` is asked between two checkpoints.
  Pass store_missing(const Retention& rule, const std::function<void(const std::string& name)>& begins,
                     const std::function<bool()>& stop);

  /// If the store has a checkpoint of a later step than `step` that verifies and is not given up, puts it into the run's folder and
  /// returns its path: the latest one. Calls `note` for each that cannot be used. Throws Error(environment) if the names of the stored
  /// checkpoints cannot be read.
  std::optional<fs::path> bring_newer(int64_t step, const Attempts& attempts,
                                      const std::function<void(const std::string&)>& note);

  /// Removes all checkpoints of the run from the store and returns their number. Throws Error(environment).
  int64_t remove_all();

 private:
  /// The entry of a checkpoint in RUN/stored.json.
  struct Stored {
    std::string manifest;  ///< its hash
    int64_t step = 0, attempt = 0;
    double created = 0;
    std::optional<double> monitored = {};
  };

  template <typename Work>
  auto calling(const char* function, const std::string& name, Work&& work);
  void read_record();
  void write_record();
  void list();
  bool is_stored(const KnownCheckpoint& checkpoint) const;
  void store(const KnownCheckpoint& checkpoint);
  void record(const KnownCheckpoint& checkpoint, const std::string& manifest);
  std::vector<KnownCheckpoint> known_here(const Retention& rule) const;
  /// The names of those in the run's folder that the rule would remove from the store at once.
  std::set<fs::path> not_worth_storing(const std::vector<KnownCheckpoint>& folder, const Retention& rule) const;
  void remove_surplus(const Retention& rule);
  std::optional<fs::path> bring(const std::string& name, const Attempts& attempts);
  fs::path folder() const { return run_dir_ / "checkpoints"; }

  std::mutex mutex_;  ///< guards everything below
  std::unique_ptr<parts::CheckpointIO> io_;
  const std::string file_;
  std::string run_, monitor_;
  fs::path run_dir_;
  std::map<std::string, Stored> stored_;
  std::optional<std::set<std::string>> listed_;  ///< what the plug-in says is stored; nothing: not asked yet
  std::set<std::string> noted_;                  ///< names that a note was about
  std::function<void(const std::string&)> note_;
};

}  // namespace runner
