// A checkpoint: manifest.json + one rank-NNNNN.safetensors a rank, published by one rename. Any strategy on N ranks writes what
// any strategy on M ranks reads: tensors are cut into flat pieces, and the manifest's index says where each piece lies. Torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/safetensors.hpp"

namespace runner {

/// A rank's piece of a tensor: elements [offset, offset + length) of the flattened global tensor.
struct Piece {
  std::string tensor;                 ///< "param/NAME", "optimizer/exp_avg/NAME", ...
  std::string dtype;
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  std::span<const std::byte> data;    ///< length x dtype_bytes
};

/// Everything else a run needs to continue: step, data position, scaler, schedule, RNG, recipe hash, strategy, world size.
using TrainerState = nlohmann::json;

/// Writing, one object a checkpoint and rank. All ranks write into one temporary folder; rank 0 publishes.
class CheckpointWriter {
 public:
  /// `checkpoints` = RUN_DIR/checkpoints; the final name is step-NNNNNN.
  CheckpointWriter(fs::path checkpoints, int64_t step, int rank, int world_size);
  /// Writes this rank's file. Returns the entry (file, bytes, hash, pieces) that rank 0 needs in publish().
  nlohmann::json write_rank(const std::vector<Piece>& pieces);
  /// Rank 0, once every rank's entry is here: checks that pieces cover every tensor exactly once (replicas are written by one
  /// rank only), writes the manifest, renames. Returns the final path.
  fs::path publish(const std::vector<nlohmann::json>& rank_entries, const TrainerState& state);
  /// Removes the temporary folder.
  void abandon();

 private:
  fs::path final_, temporary_;
  int64_t step_;
  int rank_, world_size_;
};

/// Reading.
class Checkpoint {
 public:
  /// Opens and checks manifest and files (presence, size; hashes when `verify`). Throws Error(environment) naming the file and
  /// what is wrong with it (missing, truncated, corrupted), and the previous good checkpoint beside it if there is one.
  explicit Checkpoint(const fs::path& path, bool verify = true);
  int64_t step() const;
  const TrainerState& state() const;
  std::vector<std::string> tensors() const;
  bool has(const std::string& tensor) const;
  const std::vector<int64_t>& shape(const std::string& tensor) const;
  const std::string& dtype(const std::string& tensor) const;
  /// Copies elements [offset, offset + length) of the flattened tensor, from whichever files hold them. Only these bytes are read.
  void read(const std::string& tensor, int64_t offset, int64_t length, std::span<std::byte> out) const;
  uint64_t bytes_read() const;  ///< so far, for tests and reports

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Finished checkpoints of a run, oldest first; temporary folders are not listed.
std::vector<fs::path> list_checkpoints(const fs::path& checkpoints);
/// The newest that opens and verifies; says through `note` which were skipped and why.
std::optional<fs::path> newest_good_checkpoint(const fs::path& checkpoints,
                                               const std::function<void(const std::string&)>& note = {});
/// Removes temporary folders left by killed runs, and published ones beyond the newest `keep_last` (0 = all) that are not among
/// the `save_top_k` best by `monitor` (a number in the manifest's state, lower is better).
void retain(const fs::path& checkpoints, int64_t keep_last, int64_t save_top_k, const std::string& monitor);

}  // namespace runner
