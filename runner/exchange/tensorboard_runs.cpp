// TensorBoard's event files as runs.
#include <algorithm>
#include <cstring>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/protobuf_reader.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// What the files of one folder have recorded. The records of a file, and files in the order of their names, follow in time.
class EventFiles {
 public:
  explicit EventFiles(const fs::path& folder) : folder_(folder) {}

  void read(const fs::path& file) {
    const std::string bytes = read_file(file);
    std::string_view rest = bytes;
    constexpr size_t head = 12, tail = 4;
    while (rest.size() >= head) {
      uint64_t length = 0;
      std::memcpy(&length, rest.data(), sizeof length);
      const size_t at = bytes.size() - rest.size();
      if (checksum_at(rest, 8) != masked_checksum(rest.substr(0, 8)))
        throw environment_error("{}: the record at byte {} is damaged: its length has another checksum", file.string(),
                                at);
      if (rest.size() - head < tail || length > rest.size() - head - tail) break;
      const auto event = rest.substr(head, length);
      if (checksum_at(rest, head + length) != masked_checksum(event))
        throw environment_error("{}: the record at byte {} is damaged: it has another checksum", file.string(), at);
      read_event(event);
      rest.remove_prefix(head + length + tail);
    }
    if (!rest.empty())
      notes_.push_back(fmt::format("{}: the last record is not complete; it is left out", file.string()));
  }

  bool empty() const { return points_.empty(); }
  std::vector<std::string>& notes() { return notes_; }

  ForeignRun run(const std::string& name) {
    ForeignRun run{.origin = fs::absolute(folder_).lexically_normal().string(), .name = name};
    run.config = config_;
    run.started = first_time_;
    run.ended = last_time_;
    for (const auto& [tag, steps] : points_)
      for (const auto& [step, value] : steps) run.points.push_back({.name = tag, .step = step, .value = value});
    return run;
  }

 private:
  static uint32_t checksum_at(std::string_view bytes, size_t at) {
    uint32_t sum = 0;
    std::memcpy(&sum, bytes.data() + at, sizeof sum);
    return sum;
  }

  void read_event(std::string_view event) {
    constexpr int wall_time = 1, step_field = 2, summary = 5, session_log = 7;
    double time = 0;
    int64_t step = 0;
    ProtobufField field;
    for (ProtobufReader reader(event); reader.next(field);) {
      if (field.number == wall_time) time = field.real64();
      if (field.number == step_field) step = field.integer();
    }
    for (ProtobufReader reader(event); reader.next(field);) {
      if (field.number == session_log) restart(field.bytes, step);
      if (field.number != summary) continue;
      read_summary(field.bytes, step);
      first_time_ = first_time_ == 0 ? time : std::min(first_time_, time);
      last_time_ = std::max(last_time_, time);
    }
  }

  /// As TensorBoard does: values of later steps from before a restart do not count.
  void restart(std::string_view session_log, int64_t step) {
    constexpr int status = 1, start = 1;
    ProtobufField field;
    for (ProtobufReader reader(session_log); reader.next(field);)
      if (field.number == status && field.integer() == start)
        for (auto& [tag, steps] : points_) steps.erase(steps.lower_bound(step), steps.end());
  }

  void read_summary(std::string_view summary, int64_t step) {
    ProtobufField field;
    for (ProtobufReader reader(summary); reader.next(field);)
      if (field.number == 1) read_value(field.bytes, step);
  }

  void read_value(std::string_view value, int64_t step) {
    constexpr int tag_field = 1, simple_value = 2, tensor = 8, metadata = 9;
    std::string tag, plugin;
    std::string_view content, tensor_bytes;
    std::optional<double> number;
    ProtobufField field;
    for (ProtobufReader reader(value); reader.next(field);) {
      if (field.number == tag_field) tag = field.bytes;
      if (field.number == simple_value) number = field.real32();
      if (field.number == tensor) tensor_bytes = field.bytes;
      if (field.number == metadata) read_plugin(field.bytes, plugin, content);
    }
    if (plugin == "hparams") return read_parameters(content);
    if (!plugin.empty()) plugins_[tag] = plugin;  // TensorFlow writes it only once for each tag
    if (!number && !tensor_bytes.empty() && plugins_[tag] == "scalars") number = scalar_in(tensor_bytes);
    if (number) points_[tag][step] = *number;
  }

  static void read_plugin(std::string_view metadata, std::string& name, std::string_view& content) {
    ProtobufField field, inner;
    for (ProtobufReader reader(metadata); reader.next(field);)
      if (field.number == 1)
        for (ProtobufReader data(field.bytes); data.next(inner);) {
          if (inner.number == 1) name = inner.bytes;
          if (inner.number == 2) content = inner.bytes;
        }
  }

  /// The value of a TensorProto with one number: float or double, in its own field or as bytes.
  static std::optional<double> scalar_in(std::string_view tensor) {
    constexpr int dtype_field = 1, tensor_content = 4, float_values = 5, double_values = 6;
    constexpr int64_t float_type = 1;
    int64_t dtype = float_type;
    std::optional<double> number;
    ProtobufField field;
    const auto from_bytes = [&](std::string_view bytes, bool as_float) -> std::optional<double> {
      if (as_float && bytes.size() >= sizeof(float)) {
        float value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
      }
      double value = 0;
      if (bytes.size() < sizeof value) return std::nullopt;
      std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    };
    for (ProtobufReader reader(tensor); reader.next(field);) {
      if (field.number == dtype_field) dtype = field.integer();
      if (field.number == tensor_content) number = from_bytes(field.bytes, dtype == float_type);
      if (field.number == float_values) number = field.bytes.empty() ? field.real32() : from_bytes(field.bytes, true);
      if (field.number == double_values) number = field.bytes.empty() ? field.real64() : from_bytes(field.bytes, false);
    }
    return number;
  }

  /// HParamsPluginData (tensorboard/plugins/hparams/plugin_data.proto).
  void read_parameters(std::string_view data) {
    constexpr int session_start = 3, parameters = 1, key_field = 1, value_field = 2;
    ProtobufField field, inner, entry;
    for (ProtobufReader reader(data); reader.next(field);) {
      if (field.number != session_start) continue;
      for (ProtobufReader start(field.bytes); start.next(inner);) {
        if (inner.number != parameters) continue;
        std::string key;
        json value;
        for (ProtobufReader pair(inner.bytes); pair.next(entry);) {
          if (entry.number == key_field) key = entry.bytes;
          if (entry.number == value_field) value = parameter_in(entry.bytes);
        }
        if (!key.empty()) set_parameter(config_, key, value);
      }
    }
  }

  /// google.protobuf.Value
  static json parameter_in(std::string_view value) {
    constexpr int number = 2, text = 3, flag = 4;
    ProtobufField field;
    json found;
    for (ProtobufReader reader(value); reader.next(field);) {
      if (field.number == number) found = field.real64();
      if (field.number == text) found = std::string(field.bytes);
      if (field.number == flag) found = field.whole != 0;
    }
    return found;
  }

  fs::path folder_;
  std::map<std::string, std::map<int64_t, double>> points_;
  std::map<std::string, std::string> plugins_;  ///< tag -> plug-in
  json config_ = json::object();
  double first_time_ = 0, last_time_ = 0;
  std::vector<std::string> notes_;
};

bool is_event_file(const fs::path& path) { return path.filename().string().find("tfevents") != std::string::npos; }

}  // namespace

ForeignRuns read_tensorboard_runs(const fs::path& path) {
  std::map<fs::path, std::vector<fs::path>> folders;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file() && is_event_file(entry.path()))
        folders[entry.path().parent_path()].push_back(entry.path());
  } else {
    folders[path.parent_path()].push_back(path);
  }
  if (folders.empty())
    throw usage_error("{} has no event files of TensorBoard (events.out.tfevents...)", path.string());
  ForeignRuns found;
  const fs::path root = fs::absolute(path).lexically_normal();
  for (auto& [folder, files] : folders) {
    std::ranges::sort(files);
    EventFiles events(folder);
    for (const auto& file : files) events.read(file);
    found.notes.insert(found.notes.end(), events.notes().begin(), events.notes().end());
    const fs::path relative = fs::absolute(folder).lexically_normal().lexically_relative(root);
    const bool is_root = relative == "." || relative.empty() || *relative.begin() == "..";
    if (events.empty())
      found.notes.push_back(fmt::format("{} has no scalars; it is left out", folder.string()));
    else
      found.runs.push_back(
          events.run(is_root ? fs::absolute(folder).lexically_normal().filename().string() : relative.string()));
  }
  return found;
}

}  // namespace runner
