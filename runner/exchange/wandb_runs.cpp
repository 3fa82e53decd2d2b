// Offline runs of Weights & Biases: a log of records in blocks as LevelDB's (wandb/sdk/internal/datastore.py), each a message Record
// (wandb/proto/wandb_internal.proto).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"
#include "runner/logging/crc32.hpp"
#include "runner/logging/protobuf.hpp"

namespace runner {

namespace {

// JSON as Python's json module writes it: with the numbers NaN, Infinity and -Infinity, which JSON does not have.

using nlohmann::json;

/// The value, in which "NaN", "Infinity" and "-Infinity" are texts (as json_number() writes them). Nothing if it is no JSON.
std::optional<json> parse_python_json(std::string_view text) {
  std::string standard;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      standard += text.substr(i++, 2);
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted) {
      std::string_view word;
      for (const std::string_view one : {"NaN", "Infinity", "-Infinity"})
        if (text.substr(i).starts_with(one)) word = one;
      if (!word.empty()) {
        standard.append("\"").append(word).append("\"");
        i += word.size() - 1;
        continue;
      }
    }
    standard += c;
  }
  json value = foreign_json(standard);
  return value.is_discarded() ? std::nullopt : std::optional(std::move(value));
}

/// The value of a number, of true (1) and false (0), and of the texts "NaN", "Infinity" and "-Infinity".
std::optional<double> number_of_json(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value == "NaN") return std::nan("");
  if (value == "Infinity") return INFINITY;
  if (value == "-Infinity") return -INFINITY;
  return std::nullopt;
}

constexpr size_t file_head_bytes = 7, block_bytes = 32768, fragment_head_bytes = 7;

/// The records of the file up to its end or to the first damage, which `note` then names.
std::vector<std::string> records_of(const std::string& bytes, const fs::path& file, std::string& note) {
  if (bytes.size() < file_head_bytes || !bytes.starts_with(":W&B"))
    throw usage_error("{} is not an offline run of Weights & Biases: it {}", file.string(),
                      bytes.empty() ? "is empty" : "does not begin with :W&B");
  std::vector<std::string> records;
  std::string record;
  size_t at = file_head_bytes;
  enum Type { full = 1, first = 2, middle = 3, last = 4 };
  while (at < bytes.size()) {
    const size_t left = block_bytes - at % block_bytes;
    if (left < fragment_head_bytes) {
      at += left;
      continue;
    }
    uint32_t sum = 0;
    uint16_t length = 0;
    const bool has_head = bytes.size() - at >= fragment_head_bytes;
    if (has_head) {
      std::memcpy(&sum, bytes.data() + at, sizeof sum);
      std::memcpy(&length, bytes.data() + at + 4, sizeof length);
    }
    if (!has_head || bytes.size() - at - fragment_head_bytes < length) {
      note = fmt::format("{}: the last record is not complete; it is left out", file.string());
      break;
    }
    const int type = bytes[at + 6];
    const std::string_view checked(bytes.data() + at + 6, 1U + length);
    if (type < full || type > last || crc32<zlib_polynomial>(checked) != sum) {
      note = fmt::format("{}: it is damaged from byte {} on, and the rest is left out", file.string(), at);
      break;
    }
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

/// HistoryItem, SummaryItem and ConfigItem: {1: key, 2: nested_key, 16: value_json}. A value that is no JSON is a text.
WandbItem item_in(std::string_view message) {
  constexpr int key = 1, nested_key = 2, value_json = 16;
  std::string name, nested;
  WandbItem item;
  ProtobufField field;
  for (ProtobufReader reader(message); reader.next(field);) {
    if (field.number == key) name = field.bytes;
    if (field.number == nested_key) nested += (nested.empty() ? "" : ".") + std::string(field.bytes);
    if (field.number == value_json) item.value = parse_python_json(field.bytes).value_or(std::string(field.bytes));
  }
  item.name = name.empty() ? nested : name;
  return item;
}

/// The records in the files of one run.
class WandbRun {
 public:
  explicit WandbRun(const fs::path& file) {
    std::string note;
    for (const auto& record : records_of(read_file(file), file, note)) {
      try {
        read_record(record);
      } catch (const Error& error) {
        note = fmt::format("{}: a record is damaged ({}), and the rest is left out", file.string(), error.what());
        break;
      }
    }
    if (!note.empty()) notes_.push_back(note);
    if (id_.empty()) throw usage_error("{} has no record of a run{}", file.string(), note.empty() ? "" : ": " + note);
    run_.origin = (entity_.empty() ? "" : entity_ + "/") + (project_.empty() ? "" : project_ + "/") + id_;
    if (run_.name.empty()) run_.name = id_;
    if (!run_.ended) {
      run_.ended = std::max(last_time_, run_.started);
      run_.status = "lost";
    }
  }

  const std::string& origin() const { return run_.origin; }

  /// Adds what a later file of the same run has: it was resumed.
  void join(WandbRun&& later) {
    for (const auto& [name, steps] : later.points_)
      for (const auto& [step, value] : steps) points_[name][step] = value;
    for (const auto& [name, value] : later.summary_) summary_[name] = value;
    left_out_.merge(later.left_out_);
    notes_.insert(notes_.end(), later.notes_.begin(), later.notes_.end());
    const double started = std::min(run_.started, later.run_.started);
    add_settings(run_.config, later.run_.config);
    later.run_.config = std::move(run_.config);
    run_ = std::move(later.run_);
    run_.started = started;
    last_step_ = std::max(last_step_, later.last_step_);
  }

  void give_to(ForeignRuns& found) {
    // The values of a summary that have no history: they were set at the end.
    for (const auto& [name, value] : summary_) add_values(name, last_step_, value, /*only_new=*/true);
    for (const auto& [name, steps] : points_) left_out_.erase(name);
    if (!left_out_.empty())
      notes_.push_back(fmt::format("{}: left out, because they are not numbers: {}", run_.name,
                                   runner::join({left_out_.begin(), left_out_.end()}, ", ")));
    found.notes.insert(found.notes.end(), notes_.begin(), notes_.end());
    run_.points = points_in(points_);
    run_.partial = true;
    found.runs.push_back(std::move(run_));
  }

 private:
  void read_record(std::string_view record) {
    constexpr int history = 2, summary = 3, config = 5, run = 17, exit = 18;
    ProtobufField field;
    for (ProtobufReader reader(record); reader.next(field);) {
      if (field.number == run) read_run(field.bytes);
      if (field.number == config) read_config(field.bytes);
      if (field.number == history) read_history(field.bytes);
      if (field.number == summary) read_summary(field.bytes);
      if (field.number == exit) read_exit(field.bytes);
    }
  }

  void read_run(std::string_view message) {
    constexpr int id = 1, entity = 2, project = 3, config = 4, group = 6, name = 8, notes = 9, tags = 10, host = 13,
                  start_time = 17, seconds = 1;
    ProtobufField field, inner;
    run_.tags.clear();
    for (ProtobufReader reader(message); reader.next(field);) {
      if (field.number == id) id_ = field.bytes;
      if (field.number == entity) entity_ = field.bytes;
      if (field.number == project) project_ = field.bytes;
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
    for (const auto& item : items_in(message))
      if (!item.name.empty() && !item.name.starts_with("_wandb")) set_parameter(run_.config, item.name, item.value);
  }

  /// The field `update` of ConfigRecord and SummaryRecord, and `item` of HistoryRecord.
  static std::vector<WandbItem> items_in(std::string_view message) {
    constexpr int update = 1;
    std::vector<WandbItem> items;
    ProtobufField field;
    for (ProtobufReader reader(message); reader.next(field);)
      if (field.number == update) items.push_back(item_in(field.bytes));
    return items;
  }

  void read_summary(std::string_view message) {
    for (auto& item : items_in(message))
      if (!item.name.empty() && !item.name.starts_with('_')) summary_[item.name] = std::move(item.value);
  }

  void read_history(std::string_view message) {
    constexpr int step_field = 2;
    const auto items = items_in(message);
    std::optional<int64_t> step;
    ProtobufField field, inner;
    for (ProtobufReader reader(message); reader.next(field);)
      if (field.number == step_field)
        for (ProtobufReader number(field.bytes); number.next(inner);)
          if (inner.number == 1) step = inner.integer();
    for (const auto& item : items) {
      if (item.name == "_step" && item.value.is_number_integer()) step = item.value.get<int64_t>();
      if (item.name == "_timestamp" && item.value.is_number())
        last_time_ = std::max(last_time_, item.value.get<double>());
    }
    for (const auto& item : items)
      if (!item.name.starts_with('_')) add_values(item.name, step.value_or(next_step_), item.value, false);
    last_step_ = std::max(last_step_, step.value_or(next_step_));
    next_step_ = std::min(step.value_or(next_step_), std::numeric_limits<int64_t>::max() - 1) + 1;
  }

  /// Numbers are points; of nested values, each number. Images, tables and texts are left out. `only_new`: metrics that have points
  /// get none.
  void add_values(const std::string& name, int64_t step, const json& value, bool only_new) {
    if (const auto number = number_of_json(value)) {
      if (!only_new || !points_.contains(name)) points_[name][step] = *number;
    } else if (value.is_object() && !value.contains("_type")) {
      for (const auto& [key, part] : value.items()) add_values(name + "." + key, step, part, only_new);
    } else if (!value.is_null()) {
      left_out_.insert(name);
    }
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
  std::string entity_, project_, id_;
  PointTable points_;
  std::map<std::string, json> summary_;
  std::set<std::string> left_out_;  ///< names of values that are not numbers
  int64_t next_step_ = 0, last_step_ = 0;
  double last_time_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

ForeignRuns read_wandb_runs(const fs::path& path) {
  std::vector<fs::path> files{path};
  if (fs::is_directory(path))
    files = files_below(path, [](const fs::path& file) { return file.extension() == ".wandb"; });
  if (files.empty()) throw usage_error("{} has no offline run of Weights & Biases (run-ID.wandb)", path.string());
  std::map<std::string, WandbRun> runs;
  std::vector<std::string> order;
  const auto errors = read_each(files, [&](const fs::path& file) {
    WandbRun run(file);
    if (const auto known = runs.find(run.origin()); known != runs.end()) return known->second.join(std::move(run));
    order.push_back(run.origin());
    runs.emplace(order.back(), std::move(run));
  });
  if (runs.empty()) throw errors.front();
  ForeignRuns found;
  for (const auto& error : errors) found.notes.emplace_back(std::string(error.what()) + "; it is left out");
  for (const auto& origin : order) runs.at(origin).give_to(found);
  return found;
}

}  // namespace runner
