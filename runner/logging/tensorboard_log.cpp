#include "runner/logging/tensorboard_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "runner/base/clock.hpp"
#include "runner/base/host_name.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/logging/crc32.hpp"
#include "runner/logging/protobuf.hpp"

namespace runner {

using namespace protobuf;

namespace {

// Fields of Event, Summary, Summary.Value, SummaryMetadata, TensorProto and SessionLog.
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace value {
constexpr int list = 1, tag = 1, simple_value = 2, tensor = 8, metadata = 9;
}

/// An event with its length and checksums. `rest`: its fields after the time and the step.
std::string event_record(double time, int64_t step, const std::string& rest) {
  const auto content = double_field(event::wall_time, time) + number_field(event::step, step) + rest;
  const auto length = bytes_of(static_cast<uint64_t>(content.size()));
  return length + bytes_of(masked_checksum(length)) + content + bytes_of(masked_checksum(content));
}

/// A value that the text plugin shows, as Markdown.
std::string text_value(const std::string& tag, const std::string& text) {
  constexpr int plugin_data = 1, plugin_name = 1, dtype = 1, string_dtype = 7, shape = 2, string_value = 8;
  const auto metadata = message_field(plugin_data, message_field(plugin_name, "text"));
  const auto tensor = number_field(dtype, string_dtype) + message_field(shape, "") + message_field(string_value, text);
  return message_field(value::list, message_field(value::tag, tag) + message_field(value::tensor, tensor) +
                                        message_field(value::metadata, metadata));
}

/// The events with which an attempt begins.
std::string first_events(const AttemptStart& attempt) {
  constexpr int status = 1, start = 1;
  const double started = start_of_run(attempt.run), now = wall_seconds();
  int64_t first_step = 0;
  double seconds = 0;
  std::string history;
  each_recorded_step(attempt, [&](int64_t step, const StepValues& values) {
    first_step = std::min(first_step, step);
    if (const auto found = values.find(metric::seconds); found != values.end()) seconds = found->second;
    std::string scalars;
    for (const auto& [name, number] : values) scalars += scalar_value(name, number);
    history += summary_record(started + seconds, step, scalars);
  });
  std::string bytes = version_record(now);
  bytes += event_record(now, first_step, message_field(event::session_log, number_field(status, start)));
  const auto recipe = text_value("recipe", "```toml\n" + attempt.row.resolved + "\n```");
  bytes += summary_record(started, 0, recipe);
  return bytes + history;
}

}  // namespace

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32<castagnoli_polynomial>(bytes), 15) + 0xa282ead8u;
}

std::string version_record(double time) {
  return event_record(time, 0, message_field(event::file_version, "brain.Event:2"));
}

std::string summary_record(double time, int64_t step, const std::string& values) {
  return event_record(time, step, message_field(event::summary, values));
}

std::string scalar_value(const std::string& name, double number) {
  return message_field(value::list,
                       message_field(value::tag, name) + float_field(value::simple_value, static_cast<float>(number)));
}

fs::path TensorBoardLog::next_path() const {
  // Two attempts may begin within a second.
  auto seconds = static_cast<int64_t>(wall_seconds());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view prefix = "events.out.tfevents.";
    if (name.starts_with(prefix))
      seconds = std::max<int64_t>(seconds, std::strtoll(name.c_str() + prefix.size(), nullptr, 10) + 1);
  }
  return folder_ / fmt::format("events.out.tfevents.{:010}.{}.{}.0", seconds, host_name(), ::getpid());
}

void TensorBoardLog::begin(const AttemptStart& attempt) {
  std::error_code ignored;  // writing reports it
  fs::create_directories(folder_, ignored);
  const auto path = next_path();
  file_.reset();
  // TensorBoard must not see half a file: it would drop the values of the others. It reads all files whose names have "tfevents".
  const auto beside = folder_.parent_path() / fmt::format(".{}.{}.tmp", folder_.filename().string(), ::getpid());
  write_file_atomic(beside, first_events(attempt));
  std::error_code failed;
  fs::rename(beside, path, failed);
  if (failed) throw environment_error("cannot write {}: {}", path.string(), failed.message());
  file_.emplace(path);
}

void TensorBoardLog::points(const PointGroup& group) {
  std::string values;
  for (const auto& point : group.points) values += scalar_value(point.name, point.value);
  file_->append(summary_record(wall_seconds(), group.step, values));
}

}  // namespace runner
