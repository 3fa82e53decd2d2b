#include "runner/logging/tensorboard_log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <chrono>

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

std::string event_at(int64_t step, const std::string& rest) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return double_field(event::wall_time, now) + number_field(event::step, step) + rest;
}

std::string scalar(const MetricPoint& point) {
  return message_field(value::list, message_field(value::tag, point.name) +
                                        float_field(value::simple_value, static_cast<float>(point.value)));
}

/// A value that the text plugin shows, as Markdown.
std::string text_value(const std::string& tag, const std::string& text) {
  constexpr int plugin_data = 1, plugin_name = 1, dtype = 1, string_dtype = 7, shape = 2, string_value = 8;
  const auto metadata = message_field(plugin_data, message_field(plugin_name, "text"));
  const auto tensor = number_field(dtype, string_dtype) + message_field(shape, "") + message_field(string_value, text);
  return message_field(value::list, message_field(value::tag, tag) + message_field(value::tensor, tensor) +
                                        message_field(value::metadata, metadata));
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "host";
}

}  // namespace

uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32<castagnoli_polynomial>(bytes), 15) + 0xa282ead8u;
}

void TensorBoardLog::append(const std::string& event) {
  const auto length = bytes_of(static_cast<uint64_t>(event.size()));
  file_->append(length + bytes_of(masked_checksum(length)) + event + bytes_of(masked_checksum(event)));
}

void TensorBoardLog::begin(const AttemptStart& attempt) {
  const bool first = !fs::exists(folder_) || fs::is_empty(folder_);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  fs::path path;
  int number = 0;
  do path = folder_ / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host_name(), ::getpid(), number++);
  while (fs::exists(path));
  file_.emplace(path);
  append(event_at(0, message_field(event::file_version, "brain.Event:2")));
  constexpr int status = 1, start = 1;
  append(event_at(attempt.from_step + 1, message_field(event::session_log, number_field(status, start))));
  const auto& recipe = attempt.row.resolved;
  if (first) append(event_at(0, message_field(event::summary, text_value("recipe", "```toml\n" + recipe + "\n```"))));
}

void TensorBoardLog::points(const PointGroup& group) {
  std::string values;
  for (const auto& point : group.points) values += scalar(point);
  append(event_at(group.step, message_field(event::summary, values)));
}

}  // namespace runner
