// Offline runs of Weights & Biases: a log of records in blocks as LevelDB's (wandb/sdk/internal/datastore.py), each a message Record
// (wandb/proto/wandb_internal.proto).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/protobuf_reader.hpp"
#include "runner/logging/crc32.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t file_head_bytes = 7, block_bytes = 32768, fragment_head_bytes = 7;

/// The records of the file. Sets `cut` if the last one is not complete.
std::vector<std::string> records_of(const std::string& bytes, const fs::path& file, bool& cut) {
  if (bytes.size() < file_head_bytes || !bytes.starts_with(":W&B"))
    throw usage_error("{} is not an offline run of Weights & Biases: it does not begin with :W&B", file.string());
  std::vector<std::string> records;
  std::string record;
  size_t at = file_head_bytes;
  enum Type { full = 1, first = 2, middle = 3, last = 4 };
  cut = false;
  while (at < bytes.size()) {
    const size_t left = block_bytes - at % block_bytes;
    if (left < fragment_head_bytes) {
      at += left;
      continue;
    }
    if (bytes.size() - at < fragment_head_bytes) {
      cut = true;
      break;
    }
    uint32_t sum = 0;
    uint16_t length = 0;
    std::memcpy(&sum, bytes.data() + at, sizeof sum);
    std::memcpy(&length, bytes.data() + at + 4, sizeof length);
    const int type = bytes[at + 6];
    if (bytes.size() - at - fragment_head_bytes < length) {
      cut = true;
      break;
    }
    const std::string_view checked(bytes.data() + at + 6, 1U + length);
    if (type < full || type > last || crc32<zlib_polynomial>(checked) != sum)
      throw environment_error("{}: the record at byte {} is damaged", file.string(), at);
    if (type == full || type == first) record.clear();
    record.append(checked.substr(1));
    if (type == full || type == last) records.push_back(record);
    at += fragment_head_bytes + length;
  }
  return records;
}

struct WandbItem {
  std::string name;
  json value;
};

/// HistoryItem, SummaryItem and ConfigItem: {1: key, 2: nested_key, 16: value_json}.
WandbItem item_in(std::string_view message) {
  constexpr int key = 1, nested_key = 2, value_json = 16;
  std::string name, nested;
  WandbItem item;
  ProtobufField field;
  for (ProtobufReader reader(message); reader.next(field);) {
    if (field.number == key) name = field.bytes;
    if (field.number == nested_key) nested += (nested.empty() ? "" : ".") + std::string(field.bytes);
    if (field.number == value_json) {
      // JSON as Python writes it: NaN and Infinity are numbers.
      if (field.bytes == "NaN")
        item.value = std::nan("");
      else if (field.bytes == "Infinity" || field.bytes == "-Infinity")
        item.value = field.bytes.front() == '-' ? -INFINITY : INFINITY;
      else
        item.value = json::parse(field.bytes, nullptr, /*allow_exceptions=*/false);
    }
  }
  item.name = name.empty() ? nested : name;
  return item;
}

class WandbFile {
 public:
  explicit WandbFile(const fs::path& file) {
    bool cut = false;
    for (const auto& record : records_of(read_file(file), file, cut)) read_record(record);
    if (cut) note_ = fmt::format("{}: the last record is not complete; it is left out", file.string());
    if (run_.origin.empty()) throw usage_error("{} has no record of a run", file.string());
    if (run_.name.empty()) run_.name = run_.origin;
    if (!run_.ended) {
      run_.ended = std::max(last_time_, run_.started);
      run_.status = "lost";
    }
    for (const auto& [name, steps] : points_)
      for (const auto& [step, value] : steps) run_.points.push_back({.name = name, .step = step, .value = value});
  }
  ForeignRun run() { return std::move(run_); }
  const std::string& note() const { return note_; }

 private:
  void read_record(std::string_view record) {
    constexpr int history = 2, config = 5, run = 17, exit = 18;
    ProtobufField field;
    for (ProtobufReader reader(record); reader.next(field);) {
      if (field.number == run) read_run(field.bytes);
      if (field.number == config) read_config(field.bytes);
      if (field.number == history) read_history(field.bytes);
      if (field.number == exit) read_exit(field.bytes);
    }
  }

  void read_run(std::string_view message) {
    constexpr int id = 1, config = 4, group = 6, name = 8, notes = 9, tags = 10, host = 13, start_time = 17,
                  seconds = 1;
    ProtobufField field, inner;
    run_.tags.clear();
    for (ProtobufReader reader(message); reader.next(field);) {
      if (field.number == id) run_.origin = field.bytes;
      if (field.number == config) read_config(field.bytes);
      if (field.number == group) run_.group = field.bytes;
      if (field.number == name) run_.name = field.bytes;
      if (field.number == notes) run_.notes = field.bytes;
      if (field.number == tags) run_.tags.emplace_back(field.bytes);
      if (field.number == host) run_.host = field.bytes;
      if (field.number == start_time)
        for (ProtobufReader time(field.bytes); time.next(inner);)
          if (inner.number == seconds) run_.started = static_cast<double>(inner.integer());
    }
  }

  void read_config(std::string_view message) {
    constexpr int update = 1;
    ProtobufField field;
    for (ProtobufReader reader(message); reader.next(field);) {
      if (field.number != update) continue;
      const auto item = item_in(field.bytes);
      if (!item.name.empty() && !item.name.starts_with("_wandb")) set_parameter(run_.config, item.name, item.value);
    }
  }

  void read_history(std::string_view message) {
    constexpr int item_field = 1, step_field = 2;
    std::vector<WandbItem> items;
    std::optional<int64_t> step;
    ProtobufField field, inner;
    for (ProtobufReader reader(message); reader.next(field);) {
      if (field.number == item_field) items.push_back(item_in(field.bytes));
      if (field.number == step_field)
        for (ProtobufReader number(field.bytes); number.next(inner);)
          if (inner.number == 1) step = inner.integer();
    }
    for (const auto& item : items) {
      if (item.name == "_step" && item.value.is_number()) step = item.value.get<int64_t>();
      if (item.name == "_timestamp" && item.value.is_number())
        last_time_ = std::max(last_time_, item.value.get<double>());
    }
    for (const auto& item : items)
      if (!item.name.starts_with('_')) add(item.name, step.value_or(next_step_), item.value);
    next_step_ = step.value_or(next_step_) + 1;
  }

  /// Numbers are points; of nested values, each number. Images, tables and texts are left out.
  void add(const std::string& name, int64_t step, const json& value) {
    if (value.is_number() || value.is_boolean())
      points_[name][step] = value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>();
    else if (value.is_object() && !value.contains("_type"))
      for (const auto& [key, part] : value.items()) add(name + "." + key, step, part);
  }

  void read_exit(std::string_view message) {
    constexpr int exit_code = 1, runtime = 2;
    int64_t code = 0, seconds = 0;
    ProtobufField field;
    for (ProtobufReader reader(message); reader.next(field);) {
      if (field.number == exit_code) code = field.integer();
      if (field.number == runtime) seconds = field.integer();
    }
    run_.status = code == 0 ? "finished" : "failed";
    run_.ended = std::max(last_time_, run_.started + static_cast<double>(seconds));
  }

  ForeignRun run_;
  std::map<std::string, std::map<int64_t, double>> points_;
  int64_t next_step_ = 0;
  double last_time_ = 0;
  std::string note_;
};

}  // namespace

ForeignRuns read_wandb_runs(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file() && entry.path().extension() == ".wandb") files.push_back(entry.path());
  } else {
    files.push_back(path);
  }
  if (files.empty()) throw usage_error("{} has no offline run of Weights & Biases (run-ID.wandb)", path.string());
  std::ranges::sort(files);
  ForeignRuns found;
  for (const auto& file : files) {
    WandbFile one(file);
    if (!one.note().empty()) found.notes.push_back(one.note());
    found.runs.push_back(one.run());
  }
  return found;
}

}  // namespace runner
