// TensorBoard's event files as runs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/half.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"
#include "runner/logging/protobuf.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

using nlohmann::json;

namespace {

struct NumberType {
  int64_t dtype;  ///< as in types.proto
  size_t bytes;   ///< of a number in tensor_content
  int field;      ///< that has the numbers otherwise
  double (*value)(uint64_t bits);
};

template <typename Number>
double whole(uint64_t bits) {
  return static_cast<double>(static_cast<Number>(bits));
}

constexpr int float_values = 5, double_values = 6;

constexpr NumberType number_types[] = {
    {1, 4, float_values, [](uint64_t bits) -> double { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }},
    {2, 8, double_values, [](uint64_t bits) { return std::bit_cast<double>(bits); }},
    {3, 4, 7, whole<int32_t>},
    {4, 1, 7, whole<uint8_t>},
    {5, 2, 7, whole<int16_t>},
    {6, 1, 7, whole<int8_t>},
    {9, 8, 10, whole<int64_t>},
    {10, 1, 11, whole<bool>},
    {14, 2, 13, [](uint64_t bits) -> double { return bfloat16_to_float(static_cast<uint16_t>(bits)); }},
    {17, 2, 7, whole<uint16_t>},
    {19, 2, 13, [](uint64_t bits) -> double { return half_to_float(static_cast<uint16_t>(bits)); }},
    {22, 4, 16, whole<uint32_t>},
    {23, 8, 17, whole<uint64_t>}};

std::optional<uint64_t> first_bits(std::string_view bytes, size_t size) {
  uint64_t bits = 0;
  if (bytes.size() < size) return std::nullopt;
  std::memcpy(&bits, bytes.data(), size);
  return bits;
}

/// The first number of a repeated field, which is packed into bytes or stands alone.
std::optional<uint64_t> first_bits(const ProtobufField& field, const NumberType& type) {
  if (field.bytes.empty()) return field.whole;
  if (field.number == float_values || field.number == double_values) return first_bits(field.bytes, type.bytes);
  constexpr char varint_of_field_1 = 1 << 3;
  const std::string message = varint_of_field_1 + std::string(field.bytes);
  ProtobufField first;
  return ProtobufReader(message).next(first) ? std::optional(first.whole) : std::nullopt;
}

}  // namespace

std::optional<double> scalar_in_tensor(std::string_view tensor) {
  constexpr int dtype_field = 1, tensor_content = 4;
  int64_t dtype = number_types[0].dtype;
  ProtobufField field;
  for (ProtobufReader reader(tensor); reader.next(field);)
    if (field.number == dtype_field) dtype = field.integer();
  const auto* type = std::ranges::find(number_types, dtype, &NumberType::dtype);
  if (type == std::end(number_types)) return std::nullopt;
  std::optional<uint64_t> bits;
  for (ProtobufReader reader(tensor); reader.next(field) && !bits;) {
    if (field.number == tensor_content) bits = first_bits(field.bytes, type->bytes);
    if (field.number == type->field) bits = first_bits(field, *type);
  }
  return bits ? std::optional(type->value(*bits)) : std::nullopt;
}

namespace {

/// The records in the files of one run. The records of a file, and files in the order of their names, follow in time.
class EventFiles {
 public:
  void read(const fs::path& file) {
    const std::string bytes = read_file(file);
    std::string_view rest = bytes;
    constexpr size_t head = 12, tail = 4;
    const auto note = [&](const std::string& text) { notes_.push_back(file.string() + ": " + text); };
    const auto damaged = [&](const std::string& why) {
      note(
          fmt::format("it is damaged from byte {} on ({}), and the rest is left out", bytes.size() - rest.size(), why));
    };
    while (rest.size() >= head) {
      uint64_t length = 0;
      std::memcpy(&length, rest.data(), sizeof length);
      if (checksum_at(rest, 8) != masked_checksum(rest.substr(0, 8)))
        return damaged("the length of a record has another checksum");
      if (rest.size() - head < tail || length > rest.size() - head - tail) break;
      const auto event = rest.substr(head, length);
      if (checksum_at(rest, head + length) != masked_checksum(event)) return damaged("a record has another checksum");
      try {
        read_event(event);
      } catch (const Error& error) {
        return damaged(error.what());
      }
      rest.remove_prefix(head + length + tail);
    }
    if (!rest.empty()) note("the last record is not complete; it is left out");
  }

  bool empty() const { return points_.empty(); }
  std::vector<std::string>& notes() { return notes_; }
  /// Notes of what only all files together have.
  void add_notes(const fs::path& origin) {
    for (const auto& [tag, count] : no_numbers_)
      notes_.push_back(
          fmt::format("{}: {} of {} left out: not a tensor of numbers", origin.string(), counted(count, "value"), tag));
  }

  ForeignRun run(const fs::path& origin, const std::string& name) {
    ForeignRun run{.origin = origin.string(), .name = name};
    run.config = config_;
    run.started = first_time_;
    run.ended = std::max(first_time_, last_time_);
    run.points = points_in(points_);
    return run;
  }

 private:
  static uint32_t checksum_at(std::string_view bytes, size_t at) {
    uint32_t sum = 0;
    std::memcpy(&sum, bytes.data() + at, sizeof sum);
    return sum;
  }

  void read_event(std::string_view event) {
    constexpr int wall_time = 1, step_field = 2, file_version = 3, summary = 5, session_log = 7;
    double time = 0;
    int64_t step = 0;
    ProtobufField field;
    for (ProtobufReader reader(event); reader.next(field);) {
      if (field.number == wall_time) time = field.real64();
      if (field.number == step_field) step = field.integer();
    }
    for (ProtobufReader reader(event); reader.next(field);) {
      if (field.number == session_log) restart(field.bytes, step);
      if (field.number == summary) read_summary(field.bytes, step);
      // The version, a file's first record, has the time at which its writer began.
      if ((field.number != summary && field.number != file_version) || !std::isfinite(time) || time <= 0) continue;
      first_time_ = first_time_ == 0 ? time : std::min(first_time_, time);
      if (field.number == summary) last_time_ = std::max(last_time_, time);
    }
  }

  /// Removes the values of later steps from before a restart, as TensorBoard does.
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
    if (!number && !tensor_bytes.empty() && plugins_[tag] == "scalars") {
      number = scalar_in_tensor(tensor_bytes);
      if (!number) ++no_numbers_[tag];
    }
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

  PointTable points_;
  std::map<std::string, std::string> plugins_;  ///< tag -> plug-in
  std::map<std::string, int64_t> no_numbers_;   ///< tag -> scalars of other types
  json config_ = json::object();
  double first_time_ = 0, last_time_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

bool is_event_file(const fs::path& path) { return path.filename().string().find("tfevents") != std::string::npos; }

ForeignRuns read_tensorboard_runs(const fs::path& path) {
  const fs::path root = clean_path(path);
  const bool is_folder = fs::is_directory(root);
  std::map<fs::path, std::vector<fs::path>> runs;  // by their origin: a folder, or the file that the user named
  if (is_folder)
    for (const auto& file : files_below(root, is_event_file)) runs[file.parent_path()].push_back(file);
  else
    runs[root].push_back(root);
  if (runs.empty()) throw usage_error("{} has no event files of TensorBoard (events.out.tfevents...)", path.string());
  ForeignRuns found;
  for (const auto& [origin, files] : runs) {
    EventFiles events;
    for (const auto& error : read_each(files, [&](const fs::path& file) { events.read(file); }))
      events.notes().emplace_back(error.what());
    events.add_notes(origin);
    found.notes.insert(found.notes.end(), events.notes().begin(), events.notes().end());
    const fs::path folder = is_folder ? origin : origin.parent_path();
    const fs::path relative = folder.lexically_relative(root);
    const bool is_root = !is_folder || relative == ".";
    if (events.empty())
      found.notes.push_back(fmt::format("{} has no scalars; it is left out", origin.string()));
    else
      found.runs.push_back(events.run(origin, is_root ? folder.filename().string() : relative.string()));
  }
  return found;
}

}  // namespace runner
