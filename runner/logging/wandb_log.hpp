// Metrics as an offline run of Weights & Biases, which `wandb sync FOLDER` uploads.
#pragma once
#include <optional>

#include "runner/config/recipe.hpp"
#include "runner/logging/append_file.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// The folder offline-run-DATE_TIME-ID with the file run-ID.wandb. The file begins with ":W&B", 0xBEE1 (uint16) and 0. Then follow blocks
/// of 32 KiB as in LevelDB's logs: a record is one or more fragments of CRC-32 (zlib's, of type and data), length (uint16), type
/// (1 whole, 2 first, 3 middle, 4 last) and data; the rest of a block with less than 7 bytes is zeros. The data are protocol buffers
/// `Record` (wandb_internal.proto of wandb 0.31): header, run, then a summary and a history for each step, exit at the end.
///
/// An attempt begins with the values in the ledger: the file is written again and replaced at once, so a step is in it once. Each write
/// is one call, so a kill leaves whole records. Metrics of one step that are recorded within a second are one row.
class WandbLog final : public RunListener {
 public:
  WandbLog(fs::path folder, const Recipe::Logging& settings) : folder_(std::move(folder)), settings_(settings) {}
  std::string title() const override { return "the log for Weights & Biases"; }
  /// Known once an attempt has begun.
  std::string place() const override { return path_.empty() ? "" : path_.parent_path().string(); }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;
  void tick() override;
  void end(const RunEnd& end) override;

 private:
  std::string records_of(const AttemptStart& attempt);
  std::string run_record(const AttemptStart& attempt) const;
  std::string history(int64_t step, const StepValues& row, std::optional<double> wall_time);
  /// The bytes that append the records to a file of `size` bytes.
  std::string framed(const std::string& record);
  void write_pending();

  const fs::path folder_;
  const Recipe::Logging settings_;
  fs::path path_;
  std::string id_;
  double started_ = 0;  ///< Unix seconds; the run's first attempt
  std::optional<AppendFile> file_;
  int64_t size_ = 0;     ///< of the file
  int64_t records_ = 0;  ///< in the file
  int64_t pending_step_ = -1;
  StepValues pending_;        ///< values of pending_step_ that are not written yet
  double pending_since_ = 0;  ///< steady_seconds()
  double last_runtime_ = 0;
};

}  // namespace runner
