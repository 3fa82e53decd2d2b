#include "runner/exchange/tensorboard_files.hpp"

#include <map>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/exported_run.hpp"
#include "runner/logging/append_file.hpp"
#include "runner/logging/protobuf.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

using namespace protobuf;

namespace {

// Fields of Event, Summary and Summary.Value, as in tensorflow/core/util/event.proto and framework/summary.proto.
constexpr int event_wall_time = 1, event_step = 2, event_file_version = 3, event_summary = 5;
constexpr int summary_value = 1, value_tag = 1, value_simple = 2;

class EventFile {
 public:
  explicit EventFile(const fs::path& path) : file_(path) {}
  void add(double time, int64_t step, const std::string& rest) {
    const std::string event = double_field(event_wall_time, time) + number_field(event_step, step) + rest;
    const auto length = bytes_of(static_cast<uint64_t>(event.size()));
    buffer_ += length + bytes_of(masked_checksum(length)) + event + bytes_of(masked_checksum(event));
    if (buffer_.size() > (1U << 20)) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.append(buffer_);
    buffer_.clear();
  }

 private:
  AppendFile file_;
  std::string buffer_;
};

void write_events(const ExportedRun& run, const fs::path& folder) {
  std::error_code error;
  if (!fs::create_directories(folder, error))
    throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  const double started = run.shown.at("started").get<double>();
  std::map<int64_t, std::string> steps;
  for (const auto& [name, points] : run.metrics)
    for (const auto& [step, value] : points)
      steps[step] += message_field(summary_value, message_field(value_tag, escape_invalid_utf8(name)) +
                                                      float_field(value_simple, static_cast<float>(value)));
  EventFile file(folder / fmt::format("events.out.tfevents.{:010}.runner", static_cast<int64_t>(started)));
  file.add(started, 0, message_field(event_file_version, "brain.Event:2"));
  for (const auto& [step, values] : steps) file.add(run.time_of(step), step, message_field(event_summary, values));
  file.flush();
}

}  // namespace

ExportedMetrics export_tensorboard(const Ledger& ledger, const std::vector<std::string>& runs,
                                   const std::string& output) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  std::set<std::string> metrics;
  publish_folder(output, [&](const std::string& temporary) {
    for (const auto& id : runs) {
      const auto run = exported_run(ledger, id);
      write_events(run, fs::path(temporary) / run.folder);
      for (const auto& [name, points] : run.metrics) {
        metrics.insert(name);
        written.points += std::ssize(points);
      }
    }
  });
  written.metrics = std::ssize(metrics);
  return written;
}

}  // namespace runner
