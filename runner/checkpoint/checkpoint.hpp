// A checkpoint: manifest.json + one rank-NNNNN.safetensors a rank, published by one rename. Any strategy on N ranks
// writes what any strategy on M ranks reads: tensors are cut into flat pieces, and the manifest's index says where each
// piece lies. Torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/safetensors.hpp"

namespace runner {

struct Manifest;

/// A rank's piece of a tensor: elements [offset, offset + length) of the flattened global tensor.
struct Piece {
  std::string tensor;  ///< "param/NAME", "optimizer/exp_avg/NAME", ...
  std::string dtype;
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  std::span<const std::byte> data;  ///< length x dtype_bytes
  /// Instead of `data`, where the bytes are not in memory: fills `into` with those from `begin` on; `bytes` in all.
  std::function<void(int64_t begin, std::span<std::byte> into)> source = {};
  int64_t bytes = 0;
  int64_t size() const { return source ? bytes : static_cast<int64_t>(data.size()); }
};

/// Everything else a run needs to continue: step, data position, scaler, schedule, RNG, recipe hash, strategy, world
/// size. `runner export` reads {"model": {"vocab_size", "seq_len"}}. JSON has no NaN: a non-finite number comes back as
/// null.
using TrainerState = nlohmann::json;

/// Writing, one object a checkpoint and rank. All ranks write into one temporary folder, .step-NNNNNN.ATTEMPT.tmp,
/// which an attempt that was taken for dead cannot meet; rank 0 publishes. In a rank's file a piece is a 1-d tensor
/// "TENSOR[begin:end]"; __metadata__ repeats step, rank and global shapes.
class CheckpointWriter {
 public:
  /// `checkpoints` = RUN_DIR/checkpoints; the final name is step-NNNNNN.
  CheckpointWriter(fs::path checkpoints, int64_t step, int rank, int world_size, int64_t attempt = 1);
  /// Writes this rank's file. Returns the entry (file, bytes, hash, pieces) that rank 0 needs in publish(). After a
  /// failure this rank's file is gone.
  nlohmann::json write_rank(const std::vector<Piece>& pieces);
  /// Rank 0, once every rank's entry is here: checks that pieces cover every tensor exactly once (replicas are written
  /// by one rank only), writes the manifest, renames. A checkpoint of the same step is exchanged for the new one in one
  /// move. Returns the final path. After a failure the temporary folder is gone. The entry of a rank that could not
  /// write is {"rank", "failed": why}; it throws Error(environment).
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

/// Reading.
class Checkpoint {
 public:
  /// Opens and checks manifest and files (presence, size; hashes when `verify`, several files at a time). Throws
  /// Error(environment) naming the file and what is wrong with it (missing, truncated, corrupted) and, with
  /// `name_previous`, the last checkpoint before it that verifies, if there is one.
  explicit Checkpoint(const fs::path& path, bool verify = true, bool name_previous = true);
  const fs::path& path() const;
  int64_t step() const;
  int64_t world_size() const;  ///< that wrote it
  double created() const;      ///< when it was published, seconds since the epoch
  const TrainerState& state() const;
  std::vector<std::string> tensors() const;
  bool has(const std::string& tensor) const;
  /// shape, dtype and read throw Error(environment) with the nearest name for a tensor that is not there.
  const std::vector<int64_t>& shape(const std::string& tensor) const;
  const std::string& dtype(const std::string& tensor) const;
  /// Copies elements [offset, offset + length) of the flattened tensor, from whichever files hold them. Only these
  /// bytes are read.
  void read(const std::string& tensor, int64_t offset, int64_t length, std::span<std::byte> out) const;
  uint64_t bytes_read() const;  ///< of the ranks' files so far, also to verify them

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// "step-000050".
std::string checkpoint_name(int64_t step);

/// Finished checkpoints of a run, by step; temporary folders are not listed.
std::vector<fs::path> list_checkpoints(const fs::path& checkpoints);
/// The one published last of those that are `wanted`, open and verify; says through `note` which were skipped and why.
/// Published last and not of the highest step: a run that was taken back to an earlier checkpoint continues from what
/// it wrote since.
std::optional<fs::path> newest_good_checkpoint(const fs::path& checkpoints,
                                               const std::function<void(const std::string&)>& note = {},
                                               const std::function<bool(const Checkpoint&)>& wanted = {});
/// Removes the temporary folders of attempts before `attempt`: their processes have ended.
void remove_leftovers(const fs::path& checkpoints, int64_t attempt);
/// To be called by the publishing process after publish(). Removes published checkpoints beyond the last `keep_last` (0
/// = all) that are not among the `save_top_k` best by `monitor` (a number in the manifest's state, lower is better);
/// damaged ones are neither counted nor removed. Removes what killed runs left: temporary folders of steps up to that
/// of the checkpoint published last. A run writes its checkpoints in order, so its ranks may be writing a later one
/// already, but none of those.
void retain(const fs::path& checkpoints, int64_t keep_last, int64_t save_top_k, const std::string& monitor);

}  // namespace runner
