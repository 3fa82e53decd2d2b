// A checkpoint is a folder with manifest.json and one rank-NNNNN.safetensors for each rank, published by one rename. Any
// strategy on any number of ranks can read it. Each rank stores pieces of tensors; a piece is an interval of a flattened
// slice. The manifest lists the file and the byte offset of each piece. Torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/safetensors.hpp"
#include "strategies/engine/slice.hpp"

namespace runner {

struct Manifest;

/// The piece of a tensor that one rank writes: elements [offset, offset + length) of a flattened slice.
struct Piece {
  std::string tensor;  ///< "param/NAME", "optimizer/exp_avg/NAME", ...
  std::string dtype;
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  std::span<const std::byte> data;  ///< length x dtype_bytes
  /// Used instead of `data` if the piece is not in memory: fills `into` with the piece's bytes, starting at byte
  /// `begin`.
  std::function<void(int64_t begin, std::span<std::byte> into)> source = {};
  int64_t bytes = 0;       ///< size of the piece if `source` is set
  TensorSlice slice = {};  ///< of the tensor
  int64_t size() const { return source ? bytes : static_cast<int64_t>(data.size()); }
};

/// The state that a run needs to continue besides its tensors: step, data position, loss scaler, schedule, RNG, recipe hash,
/// strategy, world size. `runner export` reads {"model": {"vocab_size", "seq_len"}}. JSON has no NaN: a non-finite
/// number is read back as null.
using TrainerState = nlohmann::json;

/// Writes a checkpoint; each rank uses one object for each checkpoint. All ranks write into the same temporary folder,
/// .step-NNNNNN.ATTEMPT.tmp; rank 0 publishes it. The attempt number keeps out an older attempt that still runs
/// although it was considered dead. In a rank's file, a piece is a 1-d tensor "TENSOR[begin:end]" or
/// "TENSOR[SLICE][begin:end]". __metadata__ repeats step, rank and global shapes.
class CheckpointWriter {
 public:
  /// `checkpoints` = RUN_DIR/checkpoints; the final name is step-NNNNNN.
  CheckpointWriter(fs::path checkpoints, int64_t step, int rank, int world_size, int64_t attempt = 1);
  /// Writes this rank's file. Returns the entry (file, bytes, hash, pieces) that rank 0 passes to publish(). Removes
  /// the file if writing fails.
  nlohmann::json write_rank(const std::vector<Piece>& pieces);
  /// Called on rank 0 with the entries of all ranks. Checks that the pieces cover every tensor exactly once (only one
  /// rank writes a replicated tensor), writes the manifest and renames the folder. An existing checkpoint of the same
  /// step is replaced by one atomic exchange of names, if the filesystem supports that. Returns the final path. Removes
  /// the temporary folder on failure. The entry of a rank that could not write is {"rank", "failed": reason}; it makes
  /// this function throw Error(environment).
  fs::path publish(const std::vector<nlohmann::json>& rank_entries, const TrainerState& state);
  /// Removes the temporary folder.
  void abandon();

 private:
  template <typename Work>
  auto naming_it(Work&& work);
  void move_into_place();
  nlohmann::json write_file(const std::vector<Piece>& pieces) const;
  Manifest collect(const std::vector<nlohmann::json>& rank_entries) const;

  fs::path final_, temporary_;
  int64_t step_;
  int rank_, world_size_;
};

/// A checkpoint that is open for reading. Its files are mapped when something is read from them. Any thread may read.
class Checkpoint {
 public:
  /// Opens the manifest and the files and checks them: presence and size, and with `verify` also the hashes, several
  /// files in parallel. Throws Error(environment) with the file and its fault (missing, truncated, corrupted). With
  /// `name_previous`, the message also names the highest earlier step whose checkpoint verifies, if there is one.
  explicit Checkpoint(const fs::path& path, bool verify = true, bool name_previous = true);
  /// For one of many ranks, after another process has checked the checkpoint. Of the list of pieces, if it is long, and of the files, each
  /// read opens and checks only what it needs.
  static Checkpoint on_demand(const fs::path& path);
  const fs::path& path() const;
  int64_t step() const;
  int64_t world_size() const;  ///< of the run that wrote it
  int64_t attempt() const;     ///< number of the attempt that wrote it; 0 if an earlier version of the program did
  double created() const;      ///< when it was published, seconds since the epoch
  const TrainerState& state() const;
  std::vector<std::string> tensors() const;
  bool has(const std::string& tensor) const;
  /// shape, dtype and read throw Error(environment) if the tensor does not exist. The message suggests the nearest
  /// name.
  const std::vector<int64_t>& shape(const std::string& tensor) const;
  const std::string& dtype(const std::string& tensor) const;
  /// Copies elements [part.begin, part.end) of a flattened slice of the tensor from the files that contain them. Reads
  /// no other bytes. The slices of the pieces in the files may be others.
  void read(const std::string& tensor, const SlicePart& part, std::span<std::byte> out) const;
  /// Elements [offset, offset + length) of the flattened tensor.
  void read(const std::string& tensor, int64_t offset, int64_t length, std::span<std::byte> out) const;
  uint64_t bytes_read() const;  ///< bytes read from the ranks' files so far, including those read for verification
  size_t files_opened() const;  ///< of the ranks' files, so far
  uint64_t index_bytes_read() const;  ///< bytes read from pieces.bin so far, by read()

 private:
  struct Impl;
  explicit Checkpoint(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// Whether the run with this folder wrote the checkpoint, wherever either of them is now. The state names the run;
/// those of earlier versions do not, and the folder that contains the checkpoint counts.
bool written_by(const Checkpoint& checkpoint, const fs::path& run_dir);

/// "step-000050".
std::string checkpoint_name(int64_t step);
/// The step of that name; nothing if it is not the name of a checkpoint.
std::optional<int64_t> step_of_name(const std::string& name);

/// The folder of a checkpoint that the user has named, as an absolute path. The name is relative to the working
/// directory, or to the run's folder or its folder of checkpoints. Throws Error(usage) if there is no such folder or if
/// it is not a checkpoint; the message names checkpoints nearby.
fs::path named_checkpoint(const std::string& named, const fs::path& run_dir = {});

/// The published checkpoints of a run, sorted by step, without temporary folders.
std::vector<fs::path> list_checkpoints(const fs::path& checkpoints);
/// Attempts of a run: number -> the step that it began from. If an attempt begins at an earlier step, the run goes back
/// to that step, and later checkpoints of older attempts are given up.
using Attempts = std::map<int64_t, int64_t>;
bool given_up(const Checkpoint& checkpoint, const Attempts& attempts);
/// Whether a checkpoint of `step` that attempt `wrote` has written is given up. 0: an earlier version of the program has written it, and it
/// is never given up.
bool given_up(int64_t step, int64_t wrote, const Attempts& attempts);

/// The most recently published checkpoint that opens, verifies and is not given up. Calls `note` for each damaged
/// checkpoint with the reason. The order is that of publication, not of steps. If a process was killed while it
/// replaced a checkpoint by two renames, gives one of the two checkpoints the final name first.
std::optional<fs::path> newest_good_checkpoint(const fs::path& checkpoints, const Attempts& attempts,
                                               const std::function<void(const std::string&)>& note = {});

/// A checkpoint whose state has a number for the metric by which checkpoints are compared.
struct RatedCheckpoint {
  fs::path path;
  int64_t step = 0;
  double value = 0;  ///< of checkpoint.monitor
};
/// The checkpoints of a run that have a number for `monitor` in their state, the best first: retain() ranks them in the same way. Without
/// those that are given up and those that do not open. Their hashes are not compared.
std::vector<RatedCheckpoint> rated_checkpoints(const fs::path& checkpoints, const std::string& monitor,
                                               const Attempts& attempts);
/// The first of rated_checkpoints() that verifies. Calls `note` for each damaged checkpoint of the run with the reason, and completes
/// replacements as newest_good_checkpoint() does.
std::optional<RatedCheckpoint> best_good_checkpoint(const fs::path& checkpoints, const std::string& monitor,
                                                    const Attempts& attempts,
                                                    const std::function<void(const std::string&)>& note = {});

/// Removes the temporary folders of attempts before `attempt`. The processes of those attempts have ended.
void remove_leftovers(const fs::path& checkpoints, int64_t attempt);
struct Retention {
  int64_t keep_last = 0;   ///< number of most recently published checkpoints; 0 = all
  int64_t save_top_k = 0;  ///< number of best checkpoints
  int64_t keep_every = 0;  ///< checkpoints of steps that are multiples of this stay too; 0 = none
  std::string monitor;     ///< a number in the manifest's state
  bool higher_is_better = false;
  Attempts attempts;    ///< the last attempt of the run suffices
  bool verify = false;  ///< read all bytes of the best ones; one that is damaged stays, and the next best counts
};
/// The facts about a checkpoint that the rule needs.
struct KnownCheckpoint {
  fs::path path;
  int64_t step = 0;
  double created = 0;
  int64_t attempt = 0;
  bool given_up = false;
  std::optional<double> monitored = {};  ///< the number for Retention::monitor in its state
};
/// The checkpoints whose manifest and file sizes are correct, in the order of publication. Their hashes are not compared.
std::vector<KnownCheckpoint> known_checkpoints(const fs::path& checkpoints, const Attempts& attempts,
                                               const std::string& monitor);
/// The paths of those that the rule does not keep, see surplus_checkpoints(). `known`: in the order of publication.
std::vector<fs::path> surplus_of(const std::vector<KnownCheckpoint>& known, const Retention& retention);
/// The checkpoints that the rule does not keep, in the order of publication. None if keep_last is 0. Checkpoints that are given up
/// are not counted, and are surplus once the last attempt has written one; damaged ones are neither counted nor surplus.
std::vector<fs::path> surplus_checkpoints(const fs::path& checkpoints, const Retention& retention);
/// Removes a published checkpoint. If the process is killed, none with a published name is incomplete. A failure only logs a
/// warning.
void remove_checkpoint(const fs::path& path);
/// Gives a checkpoint, or what is left of one (hidden_folders()), the hidden name of one that is being removed. Returns the new path;
/// empty after a failure, which only logs a warning.
fs::path hide_checkpoint(const fs::path& path);
/// The temporary and hidden folders. If no process of the run is alive, writers and removals of checkpoints have left them.
std::vector<fs::path> hidden_folders(const fs::path& checkpoints);
/// The publishing process calls this after publish(). Removes surplus_checkpoints(). Also removes what killed runs left behind:
/// temporary folders of steps up to that of the most recently published checkpoint. Ranks may already write a later
/// step, but never one of those steps, because a run writes its checkpoints in order.
void retain(const fs::path& checkpoints, const Retention& retention);

}  // namespace runner
