// MLflow's stores as runs: the folder store (mlruns), and the SQLite store (mlflow/store/tracking/dbmodels/models.py).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <tuple>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"
#include "runner/ledger/source_errors.hpp"

namespace runner {

namespace {

// MLflow's folders and its database share these functions.

/// finished, failed, interrupted or lost, for MLflow's word ("FINISHED").
std::string status_of_mlflow(const std::string& status) {
  static const std::map<std::string, std::string> words = {{"FINISHED", "finished"},
                                                           {"FAILED", "failed"},
                                                           {"KILLED", "interrupted"},
                                                           {"RUNNING", "lost"},
                                                           {"SCHEDULED", "lost"}};
  const auto found = words.find(status);
  return found == words.end() ? "lost" : found->second;
}

/// Tags of users become tags KEY=VALUE, or KEY if the value is empty; some of MLflow's own and of runner's have a place in the
/// ledger.
void add_mlflow_tag(ForeignRun& run, const std::string& key, const std::string& value) {
  const std::string own_tag = "runner.tag.";
  if (key == "mlflow.note.content") run.notes = value;
  if (key == "mlflow.runName" && run.name.empty()) run.name = value;
  if (key == "runner.group") run.group = value;
  // The name of a tag may have characters that MLflow refuses; its value has all of it.
  if (key.starts_with(own_tag))
    run.tags.push_back(value.empty() || value == "true" ? key.substr(own_tag.size()) : value);
  if (!key.starts_with("mlflow.") && !key.starts_with("runner."))
    run.tags.push_back(value.empty() ? key : key + "=" + value);
}

/// The name of a metric: runner writes those that MLflow refuses into tags runner.metric.NAME.
std::string metric_of_mlflow(const std::string& name, const std::map<std::string, std::string>& tags) {
  const auto original = tags.find("runner.metric." + name);
  return original == tags.end() || original->second.empty() ? name : original->second;
}

/// (step, value), sorted by step and then by time. Returns how many were left out, because there is a later one of the same step.
int64_t add_mlflow_metric(ForeignRun& run, const std::string& name,
                          const std::vector<std::pair<int64_t, double>>& values) {
  // Metrics that are logged without a step all have step 0: their order is their step.
  const bool unnumbered = values.size() > 1 && values.front().first == 0 && values.back().first == 0;
  int64_t left_out = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [step, value] = values[i];
    if (!unnumbered && i + 1 < values.size() && values[i + 1].first == step)
      ++left_out;
    else
      run.points.push_back({.name = name, .step = unnumbered ? static_cast<int64_t>(i) : step, .value = value});
  }
  return left_out;
}

/// Completes the run, and adds it.
void add_mlflow_run(ForeignRuns& found, ForeignRun run, const std::string& experiment) {
  if (!run.ended) run.ended = run.started;
  if (experiment != "Default" && run.group.empty()) run.group = experiment;
  if (run.name.empty()) run.name = run.origin;
  found.runs.push_back(std::move(run));
}

/// The notes about what was left out.
void note_left_out(ForeignRuns& found, int64_t deleted_runs, int64_t values) {
  if (deleted_runs > 0)
    found.notes.push_back(fmt::format("left out: {} that {} deleted in MLflow", counted(deleted_runs, "run"),
                                      deleted_runs == 1 ? "was" : "were"));
  if (values > 0)
    found.notes.push_back(
        fmt::format("left out: {}, because the same step has a later value", counted(values, "value")));
}

/// The character of an escape of YAML 1.1 in "double quotes", as UTF-8; `at` moves from the letter to the last sign of the escape.
std::string yaml_escape(std::string_view text, size_t& at) {
  static const std::map<char, char32_t> letters = {{'0', 0},    {'a', 7},      {'b', 8},     {'t', 9},  {'n', 10},
                                                   {'v', 11},   {'f', 12},     {'r', 13},    {'e', 27}, {'N', 0x85},
                                                   {'_', 0xa0}, {'L', 0x2028}, {'P', 0x2029}};
  const size_t digits = text[at] == 'x' ? 2 : text[at] == 'u' ? 4 : text[at] == 'U' ? 8 : 0;
  uint32_t code = 0;
  if (digits > 0) {
    const auto* begin = text.data() + at + 1;
    const auto* end = begin + std::min(digits, text.size() - at - 1);
    const bool whole = std::from_chars(begin, end, code, 16).ptr == begin + digits;
    if (!whole || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return "\\" + std::string(1, text[at]);
    at += digits;
  } else {
    const auto letter = letters.find(text[at]);
    if (letter == letters.end()) return std::string(1, text[at]);
    code = letter->second;
  }
  std::string character;
  unicode::append(character, code);
  return character;
}

/// A scalar of YAML as PyYAML writes it: plain, 'quoted' or "quoted".
std::string yaml_scalar(std::string_view text) {
  text = trim(text);
  std::string value;
  if (text == "null" || text == "~") return "";
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"') || text.back() != text.front())
    return std::string(text);
  const char quote = text.front();
  text = text.substr(1, text.size() - 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote == '\'' && text.substr(i).starts_with("''")) {
      ++i;
    } else if (quote == '"' && text[i] == '\\' && i + 1 < text.size()) {
      value += yaml_escape(text, ++i);
      continue;
    }
    value += text[i];
  }
  return value;
}

/// The scalars of a file meta.yaml. PyYAML continues long values on lines that begin with spaces; an empty line before them stands for a
/// line end of the value.
std::map<std::string, std::string> read_meta(const fs::path& file) {
  std::map<std::string, std::string> values;
  std::istringstream lines(read_file(file));
  std::string key, text, line_ends;
  const auto end_value = [&] {
    if (!key.empty()) values[key] = yaml_scalar(text);
    key.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) {
      line_ends += '\n';
      continue;
    }
    if (line.starts_with(' ')) {
      // A line that ends with "\" goes on without a space.
      const auto signs = text.size() - (text.find_last_not_of('\\') + 1);
      if (signs % 2 == 1 && std::string_view(trim(text)).starts_with('"'))
        text.pop_back();
      else
        text += line_ends.empty() ? " " : line_ends;
      line_ends.clear();
      text += trim(line);
      continue;
    }
    end_value();
    line_ends.clear();
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.starts_with('-')) continue;
    key = line.substr(0, colon);
    text = line.substr(colon + 1);
  }
  end_value();
  return values;
}

std::string word(const std::map<std::string, std::string>& meta, const std::string& key) {
  const auto found = meta.find(key);
  return found == meta.end() ? "" : found->second;
}

std::optional<double> seconds_in(const std::string& milliseconds) {
  const auto number = parse_number<int64_t>(milliseconds);
  if (!number || *number <= 0) return std::nullopt;
  return static_cast<double>(*number) / 1000;
}

/// Older versions of MLflow store the number of RunStatus (mlflow/protos/service.proto), as newer ones do.
std::string status_word(const std::string& status) {
  static const std::map<std::string, std::string> numbers = {
      {"1", "RUNNING"}, {"2", "SCHEDULED"}, {"3", "FINISHED"}, {"4", "FAILED"}, {"5", "KILLED"}};
  const auto found = numbers.find(status);
  return status_of_mlflow(found == numbers.end() ? status : found->second);
}

/// The files of params, tags or metrics: name -> content. A name with "/" is a path of folders.
std::map<std::string, std::string> values_below(const fs::path& folder) {
  std::map<std::string, std::string> values;
  for (const auto& file : files_below(folder, [](const fs::path&) { return true; }))
    values[file.lexically_relative(folder).string()] = read_file(file);
  return values;
}

std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Lines "TIMESTAMP VALUE STEP"; of old versions without a step.
int64_t read_metric(ForeignRun& run, const std::string& name, const std::string& content, const fs::path& file) {
  struct Logged {
    int64_t step = 0, time = 0;
    double value = 0;
  };
  std::vector<Logged> all;
  std::istringstream lines(content);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (trim(line).empty()) continue;
    std::istringstream parts(line);
    std::string value;
    Logged logged;
    if (!(parts >> logged.time >> value))
      throw usage_error("{}, line {}: \"{}\" is not a time, a value and a step", file.string(), number, line);
    if (!(parts >> logged.step)) logged.step = 0;
    char* end = nullptr;
    logged.value = std::strtod(value.c_str(), &end);
    if (*end != '\0') throw usage_error("{}, line {}: the value \"{}\" is not a number", file.string(), number, value);
    all.push_back(logged);
  }
  std::ranges::stable_sort(
      all, [](const Logged& a, const Logged& b) { return std::tie(a.step, a.time) < std::tie(b.step, b.time); });
  std::vector<std::pair<int64_t, double>> values;
  for (const auto& logged : all) values.emplace_back(logged.step, logged.value);
  return add_mlflow_metric(run, name, values);
}

/// The folders in `folder` with a meta.yaml, except hidden ones.
std::vector<fs::path> described_folders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.') && fs::is_regular_file(entry->path() / "meta.yaml", error))
      found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

}  // namespace

bool is_mlflow_folder(const fs::path& folder) {
  const auto folders = described_folders(folder);
  return std::ranges::any_of(
      folders, [](const fs::path& one) { return word(read_meta(one / "meta.yaml"), "experiment_id") != ""; });
}

namespace {

ForeignRuns read_mlflow_folder(const fs::path& folder) {
  ForeignRuns found;
  int64_t deleted = 0, left_out = 0;
  std::vector<Error> errors;
  for (const auto& experiment : described_folders(folder)) {
    const std::string name = word(read_meta(experiment / "meta.yaml"), "name");
    const auto failed = read_each(described_folders(experiment), [&](const fs::path& place) {
      const auto meta = read_meta(place / "meta.yaml");
      if (word(meta, "lifecycle_stage") == "deleted") {
        ++deleted;
        return;
      }
      ForeignRun run{.origin = place.filename().string(), .name = "", .status = status_word(word(meta, "status"))};
      run.started = seconds_in(word(meta, "start_time")).value_or(0);
      run.ended = seconds_in(word(meta, "end_time"));
      for (const auto& [key, value] : values_below(place / "params"))
        set_parameter(run.config, key, without_line_end(value));
      auto tags = values_below(place / "tags");
      for (auto& [key, value] : tags) add_mlflow_tag(run, key, value = without_line_end(value));
      if (run.name.empty()) run.name = word(meta, "run_name");
      for (const auto& [key, content] : values_below(place / "metrics"))
        left_out += read_metric(run, metric_of_mlflow(key, tags), content, place / "metrics" / key);
      add_mlflow_run(found, std::move(run), name);
    });
    errors.insert(errors.end(), failed.begin(), failed.end());
  }
  if (found.runs.empty() && !errors.empty()) throw errors.front();
  for (const auto& error : errors) found.notes.emplace_back(std::string(error.what()) + "; its run is left out");
  note_left_out(found, deleted, left_out);
  return found;
}

/// Infinities are stored as the greatest number, and NaN has a column.
double number_of(double value, bool is_nan) {
  constexpr double greatest = std::numeric_limits<double>::max();
  if (is_nan) return std::nan("");
  if (value >= greatest) return INFINITY;
  return value <= -greatest ? -INFINITY : value;
}

int64_t read_metrics(sqlite::Database& store, ForeignRun& run, const std::map<std::string, std::string>& tags) {
  int64_t left_out = 0;
  std::map<std::string, std::vector<std::pair<int64_t, double>>> metrics;
  auto rows = store.query(
      "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, step, timestamp", run.origin);
  while (rows.step())
    metrics[rows.text(0)].emplace_back(rows.integer(1), number_of(rows.real(2), rows.integer(3) != 0));
  for (const auto& [name, values] : metrics) left_out += add_mlflow_metric(run, metric_of_mlflow(name, tags), values);
  return left_out;
}

ForeignRuns read_mlflow_database(const fs::path& file) {
  sqlite::Database store(file, sqlite::Access::existing);
  store.execute("PRAGMA query_only = ON");
  ForeignRuns found;
  const int64_t deleted = store.integer("SELECT count(*) FROM runs WHERE lifecycle_stage = 'deleted'");
  auto rows = store.query(
      "SELECT run_uuid, ifnull(runs.name, ''), ifnull(status, ''), start_time, end_time, ifnull(experiments.name, '') "
      "FROM runs LEFT JOIN experiments USING (experiment_id) WHERE runs.lifecycle_stage = 'active' ORDER BY "
      "start_time, run_uuid");
  int64_t left_out = 0;
  while (rows.step()) {
    constexpr double milliseconds = 1000;
    ForeignRun run{.origin = rows.text(0), .name = rows.text(1), .status = status_of_mlflow(rows.text(2))};
    run.started = rows.real(3) / milliseconds;
    if (!rows.is_null(4)) run.ended = rows.real(4) / milliseconds;
    auto params = store.query("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY key", run.origin);
    while (params.step()) set_parameter(run.config, params.text(0), params.text(1));
    std::map<std::string, std::string> tags;
    auto tag_rows = store.query("SELECT key, ifnull(value, '') FROM tags WHERE run_uuid = ?", run.origin);
    while (tag_rows.step()) tags[tag_rows.text(0)] = tag_rows.text(1);
    for (const auto& [key, value] : tags) add_mlflow_tag(run, key, value);
    left_out += read_metrics(store, run, tags);
    add_mlflow_run(found, std::move(run), rows.text(5));
  }
  note_left_out(found, deleted, left_out);
  return found;
}

}  // namespace

ForeignRuns read_mlflow_runs(const fs::path& path) {
  if (is_mlflow_folder(path)) return read_mlflow_folder(path);
  if (is_mlflow_folder(path / "mlruns")) return read_mlflow_folder(path / "mlruns");
  const fs::path file = fs::is_directory(path) ? path / "mlflow.db" : path;
  if (!fs::exists(file)) throw usage_error("{} has no store of MLflow (mlflow.db or mlruns)", path.string());
  return reading_source(file, "a store of MLflow (mlflow.db)", [&] { return read_mlflow_database(file); });
}

}  // namespace runner
