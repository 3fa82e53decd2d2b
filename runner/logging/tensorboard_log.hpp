// Metrics as event files, which TensorBoard reads while they grow.
#pragma once
#include <optional>

#include "runner/logging/append_file.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// One folder per run, and one file events.out.tfevents.SECONDS.HOST.PID.N per attempt. A record is the length of its event
/// (uint64), a checksum of these bytes, the event, and its checksum; the event is a protocol buffer `Event` (TensorFlow,
/// core/util/event.proto, core/framework/summary.proto). An attempt begins with SessionLog START: TensorBoard then drops values of
/// later steps from earlier files. The first attempt writes the resolved recipe, which TensorBoard shows as text.
class TensorBoardLog final : public RunListener {
 public:
  explicit TensorBoardLog(fs::path folder) : folder_(std::move(folder)) {}
  std::string place() const override { return folder_.string(); }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;

 private:
  void append(const std::string& event);
  fs::path folder_;
  std::optional<AppendFile> file_;
};

/// CRC-32C (Castagnoli) of the bytes, rotated right by 15 bits and increased by 0xa282ead8.
uint32_t masked_checksum(std::string_view bytes);

}  // namespace runner
