// Metrics as event files, which TensorBoard reads while they grow.
#pragma once
#include <optional>

#include "runner/logging/append_file.hpp"
#include "runner/logging/metric_log.hpp"

namespace runner {

/// One folder per run, and one file events.out.tfevents.SECONDS.HOST.PID.N per attempt. A record is the length of its event
/// (uint64), a checksum of these bytes, the event, and its checksum; the event is a protocol buffer `Event` (TensorFlow,
/// core/util/event.proto, core/framework/summary.proto). An attempt begins with SessionLog START: TensorBoard then drops values of
/// later steps from earlier files.
class TensorBoardLog final : public MetricLog {
 public:
  TensorBoardLog(fs::path folder, std::string text) : folder_(std::move(folder)), text_(std::move(text)) {}
  void begin_attempt(int64_t step, const Ledger& ledger, const std::string& run) override;
  void add(const std::vector<MetricPoint>& points) override;
  fs::path path() const override { return folder_; }

 private:
  void append(const std::string& event);
  fs::path folder_;
  std::string text_;  ///< shown under "recipe"
  std::optional<AppendFile> file_;
};

/// CRC-32C (Castagnoli) of the bytes, rotated right by 15 bits and increased by 0xa282ead8.
uint32_t masked_checksum(std::string_view bytes);

}  // namespace runner
