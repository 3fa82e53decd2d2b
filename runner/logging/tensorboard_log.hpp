// Metrics as event files, which TensorBoard reads while they grow.
#pragma once
#include <optional>

#include "runner/logging/append_file.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// Writes one folder per run, and one file events.out.tfevents.SECONDS.HOST.PID.N per attempt. A record is the length of its event
/// (uint64), a checksum of these bytes, the event, and its checksum; the event is a protocol buffer `Event` (TensorFlow,
/// core/util/event.proto, core/framework/summary.proto). An attempt begins with SessionLog START at the first step, so TensorBoard drops
/// all values of earlier files, then the resolved recipe, which it shows as text, then all points that the ledger has. So what a resume
/// has taken back is gone, and nothing is missing if this logger was off for a while. Times of these points are the run's start and
/// their metric `seconds`.
class TensorBoardLog final : public RunListener {
 public:
  explicit TensorBoardLog(fs::path folder) : folder_(std::move(folder)) {}
  std::string place() const override { return folder_.string(); }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;

 private:
  /// The name of a file that comes after all others in alphabetical order, in which TensorBoard reads them.
  fs::path next_path() const;
  fs::path folder_;
  std::optional<AppendFile> file_;
};

// Parts of event files; times are Unix seconds.

/// The record with which a file begins.
std::string version_record(double time);
/// The record of a step's values, each a scalar_value().
std::string summary_record(double time, int64_t step, const std::string& values);
std::string scalar_value(const std::string& name, double number);
/// CRC-32C (Castagnoli) of the bytes, rotated right by 15 bits and increased by 0xa282ead8.
uint32_t masked_checksum(std::string_view bytes);

}  // namespace runner
