#include "runner/logging/wandb_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/environment_text.hpp"
#include "runner/base/host_name.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/logging/crc32.hpp"
#include "runner/logging/protobuf.hpp"

namespace runner {

using namespace protobuf;
using nlohmann::json;

namespace {

// Fields of Record and of what it contains.
namespace record {
constexpr int num = 1, history = 2, summary = 3, run = 17, exit = 18, header = 21;
}
namespace run_field {
constexpr int id = 1, entity = 2, project = 3, config = 4, group = 6, name = 8, notes = 9, tags = 10, host = 13,
              start_time = 17;
}
constexpr int item = 1, history_step = 2;  // of history; `item` is also `update` of summary and config
constexpr int item_key = 1, item_nested_key = 2, item_json = 16;

constexpr size_t file_head_bytes = 7, block_bytes = 32768, fragment_head_bytes = 7;
const char* const producer = "0.31.0";      // whose format this is
const char* const min_consumer = "0.70.0";  // as wandb 0.31 writes it

/// JSON of a number as wandb writes it, with NaN and Infinity.
std::string number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string item_of(const std::string& name, const std::string& value) {
  return message_field(item, message_field(item_nested_key, name) + message_field(item_json, value));
}

std::string config_items(const json& config) {
  std::string items;
  for (const auto& [key, value] : config.items())
    items += message_field(item, message_field(item_key, key) + message_field(item_json, json_text(value)));
  return items;
}

}  // namespace

std::string WandbLog::framed(const std::string& content) {
  const std::string data = number_field(record::num, ++records_) + content;
  std::string bytes;
  size_t at = 0;
  for (bool first = true; first || at < data.size(); first = false) {
    size_t left = block_bytes - (static_cast<size_t>(size_) + bytes.size()) % block_bytes;
    if (left < fragment_head_bytes) {
      bytes.append(left, '\0');
      left = block_bytes;
    }
    const size_t length = std::min(data.size() - at, left - fragment_head_bytes);
    const bool last = at + length == data.size();
    const char type = static_cast<char>(first ? (last ? 1 : 2) : (last ? 4 : 3));
    const std::string fragment = data.substr(at, length);
    bytes +=
        bytes_of(crc32<zlib_polynomial>(type + fragment)) + bytes_of(static_cast<uint16_t>(length)) + type + fragment;
    at += length;
  }
  size_ += std::ssize(bytes);
  return bytes;
}

std::string WandbLog::run_record(const AttemptStart& attempt) const {
  const auto& row = attempt.row;
  std::string fields = message_field(run_field::id, id_);
  if (const auto entity = given_or_variable(settings_.wandb_entity, "WANDB_ENTITY", ""); !entity.empty())
    fields += message_field(run_field::entity, entity);
  fields += message_field(run_field::project, given_or_variable(settings_.wandb_project, "WANDB_PROJECT", "runner"));
  fields += message_field(run_field::config, config_items(row.config));
  fields += message_field(run_field::name, row.name);
  if (!row.group.empty()) fields += message_field(run_field::group, row.group);
  if (!row.notes.empty()) fields += message_field(run_field::notes, row.notes);
  for (const auto& tag : row.tags) fields += message_field(run_field::tags, tag);
  fields += message_field(run_field::host, host_name());
  constexpr int seconds = 1;
  fields += message_field(run_field::start_time, number_field(seconds, static_cast<int64_t>(started_)));
  return message_field(record::run, fields);
}

std::string WandbLog::history(int64_t step, const StepValues& row, std::optional<double> wall_time) {
  if (const auto seconds = row.find(metric::seconds); seconds != row.end()) last_runtime_ = seconds->second;
  std::string items;
  for (const auto& [name, value] : row) items += item_of(name, number_json(value));
  items += item_of("_step", std::to_string(step));
  items += item_of("_runtime", number_json(last_runtime_));
  items += item_of("_timestamp", number_json(wall_time.value_or(started_ + last_runtime_)));
  std::string bytes = framed(message_field(record::summary, items));
  bytes += framed(message_field(record::history, items + message_field(history_step, number_field(1, step))));
  return bytes;
}

std::string WandbLog::records_of(const AttemptStart& attempt) {
  size_ = static_cast<int64_t>(file_head_bytes);
  records_ = 0;
  last_runtime_ = 0;
  std::string bytes = ":W&B" + bytes_of(uint16_t{0xBEE1}) + '\0';
  constexpr int version_info = 1, producer_field = 1, min_consumer_field = 2;
  bytes += framed(
      message_field(record::header, message_field(version_info, message_field(producer_field, producer) +
                                                                    message_field(min_consumer_field, min_consumer))));
  bytes += framed(run_record(attempt));
  each_recorded_step(attempt, [&](int64_t step, const StepValues& row) { bytes += history(step, row, std::nullopt); });
  return bytes;
}

void WandbLog::begin(const AttemptStart& attempt) {
  // The run's id begins with the UTC time of its start, "20261121-065403-k3f9".
  id_ = attempt.run;
  std::erase(id_, '-');
  std::string time = attempt.run.substr(0, attempt.run.rfind('-'));
  std::ranges::replace(time, '-', '_');
  path_ = folder_ / fmt::format("offline-run-{}-{}", time, id_) / fmt::format("run-{}.wandb", id_);
  started_ = start_of_run(attempt.run);
  pending_.clear();
  std::error_code ignored;  // writing reports it
  fs::create_directories(path_.parent_path() / "files", ignored);
  file_.reset();
  write_file_atomic(path_, records_of(attempt));
  file_.emplace(path_);
}

void WandbLog::points(const PointGroup& group) {
  if (group.step != pending_step_) write_pending();
  if (pending_.empty()) pending_since_ = steady_seconds();
  pending_step_ = group.step;
  for (const auto& point : group.points) pending_[point.name] = point.value;
}

void WandbLog::write_pending() {
  if (pending_.empty()) return;
  file_->append(history(pending_step_, pending_, wall_seconds()));
  pending_.clear();
}

void WandbLog::tick() {
  constexpr double longest = 1;
  if (!pending_.empty() && steady_seconds() - pending_since_ > longest) write_pending();
}

void WandbLog::end(const RunEnd& end) {
  if (!file_) return;  // no attempt has begun
  write_pending();
  constexpr int exit_code = 1, runtime = 2;
  file_->append(framed(message_field(record::exit, number_field(exit_code, static_cast<int64_t>(end.outcome.code)) +
                                                       number_field(runtime, static_cast<int64_t>(last_runtime_)))));
}

}  // namespace runner
