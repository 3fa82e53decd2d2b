// The programs whose runs can be imported, and which of them has written a file or folder.
#include <algorithm>
#include <fstream>
#include <memory>

#include "runner/base/error.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/edits.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/source_errors.hpp"

namespace runner {

namespace {

std::string head_of(const fs::path& file) {
  char head[16] = {};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head, sizeof head);
  return {head, static_cast<size_t>(stream.gcount())};
}

/// Opens a database file; nothing if it is none.
std::unique_ptr<sqlite::Database> database_in(const fs::path& file) {
  if (!head_of(file).starts_with("SQLite format 3")) return nullptr;
  return std::make_unique<sqlite::Database>(file, sqlite::Access::immutable);
}

int64_t application_of(const fs::path& file) {
  return reading_source(file, "a database", [&]() -> int64_t {
    const auto database = database_in(file);
    return database ? database->integer("PRAGMA application_id") : 0;
  });
}

bool is_mlflow_database(const fs::path& file) {
  const char* tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('runs', 'metrics', 'params', 'experiments')";
  return reading_source(file, "a database", [&] {
    const auto database = database_in(file);
    return database && database->integer("PRAGMA application_id") == 0 && database->integer(tables) == 4;
  });
}

std::vector<fs::path> mlflow_places(const fs::path& path) {
  std::vector<fs::path> places;
  for (const auto& folder : {path, path / "mlruns"})
    if (is_mlflow_folder(folder)) places.push_back(folder);
  for (const auto& file : {path, path / "mlflow.db"})
    if (fs::is_regular_file(file) && is_mlflow_database(file)) places.push_back(file);
  return places;
}

/// The folders of offline runs are wholly W&B's: with sync_tensorboard, they also have event files.
std::vector<fs::path> wandb_places(const fs::path& path) {
  if (!fs::is_directory(path)) return head_of(path).starts_with(":W&B") ? std::vector{path} : std::vector<fs::path>();
  auto files = files_below(path, [](const fs::path& file) { return file.extension() == ".wandb"; });
  for (auto& file : files) file = file.parent_path();
  return files;
}

std::vector<fs::path> tensorboard_places(const fs::path& path) {
  if (fs::is_directory(path)) return files_below(path, is_event_file);
  return is_event_file(path) ? std::vector{path} : std::vector<fs::path>();
}

std::vector<fs::path> csv_places(const fs::path& path) {
  return fs::is_regular_file(path) && path.extension() == ".csv" ? std::vector{path} : std::vector<fs::path>();
}

/// Whether each of `places` is in a folder that is wholly of another program.
bool all_below(const std::vector<fs::path>& places, const std::vector<fs::path>& folders) {
  return std::ranges::all_of(places, [&](const fs::path& place) {
    return std::ranges::any_of(folders, [&](const fs::path& folder) {
      const fs::path relative = place.lexically_relative(folder);
      return fs::is_directory(folder) && !relative.empty() && *relative.begin() != ".." && relative != ".";
    });
  });
}

void refuse_ledger(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "ledger.db" : path;
  if (application_of(file) != ledger_application_id) return;
  throw usage_error(
      "{} is a ledger of runner: RUNNER_HOME={} runner export --bundle archived:any -o FILE writes its runs to a file "
      "that can be imported",
      file.string(), shell_word(file.parent_path().empty() ? "." : file.parent_path().string()));
}

/// Texts of strangers without control characters (terminal_text), also in keys.
nlohmann::json shown(const nlohmann::json& value) {
  if (value.is_string()) return terminal_text(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  auto clean = value.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  for (const auto& [key, part] : value.items())
    if (value.is_array())
      clean.push_back(shown(part));
    else
      clean[one_line(key)] = shown(part);
  return clean;
}

void clean_texts(ForeignRun& run) {
  for (std::string* text : {&run.name, &run.group, &run.host}) *text = one_line(*text);
  run.notes = terminal_text(run.notes);
  run.origin = escape_invalid_utf8(run.origin);
  for (auto& tag : run.tags) tag = one_line(tag);
  run.config = shown(run.config);
  std::map<std::string, std::string> names;
  for (auto& point : run.points) {
    auto [name, is_new] = names.try_emplace(point.name);
    if (is_new) name->second = one_line(point.name);
    if (name->second != point.name) point.name = name->second;
  }
}

/// Leaves out secret values, as in recipes.
void leave_out_secrets(ForeignRun& run, std::vector<std::string>& notes) {
  Secrets secrets;
  std::vector<std::string> keys;
  run.config = secrets.take_from(std::move(run.config), keys);
  std::vector<std::string*> texts = {&run.name, &run.group, &run.notes};
  for (auto& tag : run.tags) {
    tag = secrets.take_from(std::vector{tag}).front();  // the whole value of NAME=VALUE, also with spaces
    texts.push_back(&tag);
  }
  for (auto* text : texts) *text = secrets.take_from(std::move(*text));
  for (auto* text : texts) *text = secrets.without(std::move(*text));
  run.config = secrets.json_without(std::move(run.config));
  if (!keys.empty()) notes.push_back(fmt::format("{}: secret values are left out: {}", run.name, join(keys, ", ")));
}

/// Tables with times do not have the time of the start. Where the points are those of this program's own loggers, they have the time of
/// training.
void take_own_time(ForeignRun& run) {
  std::map<std::string, double> last;
  for (const auto& point : run.points) last[point.name] = point.value;
  const auto found = last.find(metric::seconds);
  if (!run.ended || found == last.end() || !last.contains(metric::step_seconds) || !(found->second >= 0)) return;
  run.started = *run.ended - found->second;
}

/// Leaves out times outside of the years 1970 to 9999, and an end before the start. `notes`: what was left out.
void check_times(ForeignRun& run, std::vector<std::string>& notes) {
  constexpr double end_of_years = 253402300800;  // the year 10000
  const auto is_time = [&](double seconds) { return seconds >= 0 && seconds < end_of_years; };
  if (!is_time(run.started)) {
    notes.push_back(fmt::format("{}: its start, {:g} s after 1970, is in no year up to 9999, and is left out", run.name,
                                run.started));
    run.started = 0;
  }
  if (!run.ended || (is_time(*run.ended) && *run.ended > 0 && *run.ended >= run.started)) return;
  if (*run.ended == 0 && run.started == 0) return void(run.ended.reset());
  notes.push_back(is_time(*run.ended)
                      ? fmt::format("{}: its end is before its start, and is left out", run.name)
                      : fmt::format("{}: its end, {:g} s after 1970, is in no year up to 9999, and is left out",
                                    run.name, *run.ended));
  run.ended = run.started > 0 ? std::optional(run.started) : std::nullopt;
}

/// Leaves out tags that `runner tag` would refuse, and repeated ones.
void check_tags(ForeignRun& run, std::vector<std::string>& notes) {
  std::vector<std::string> tags;
  for (auto& tag : run.tags) try {
      check_tag(tag);
      if (std::ranges::find(tags, tag) == tags.end()) tags.push_back(std::move(tag));
    } catch (const Error& error) {
      notes.push_back(fmt::format("{}: a tag is left out: {}", run.name, error.what()));
    }
  run.tags = std::move(tags);
}

}  // namespace

std::vector<MetricPoint> points_in(const PointTable& table) {
  std::vector<MetricPoint> points;
  for (const auto& [name, steps] : table)
    for (const auto& [step, value] : steps) points.push_back({.name = name, .step = step, .value = value});
  return points;
}

const std::vector<ForeignSource>& foreign_sources() {
  static const std::vector<ForeignSource> sources = {
      {"mlflow", "MLflow", mlflow_places, read_mlflow_runs},
      {"wandb", "Weights & Biases", wandb_places, read_wandb_runs},
      {"tensorboard", "TensorBoard", tensorboard_places, read_tensorboard_runs, /*has_status=*/false},
      {"csv", "a table (CSV)", csv_places, read_csv_runs, /*has_status=*/false},
  };
  return sources;
}

std::string kind_of_source(const fs::path& named) {
  const fs::path path = clean_path(named);
  if (!fs::is_directory(path) && application_of(path) == bundle_application_id) return "bundle";
  refuse_ledger(named);
  std::vector<std::pair<const ForeignSource*, std::vector<fs::path>>> found;
  for (const auto& source : foreign_sources())
    if (auto places = source.places(path); !places.empty()) found.emplace_back(&source, std::move(places));
  const auto all = found;
  std::erase_if(found, [&](const auto& one) {
    return std::ranges::any_of(
        all, [&](const auto& other) { return other.first != one.first && all_below(one.second, other.second); });
  });
  if (found.empty()) return "";
  if (found.size() == 1) return found.front().first->name;
  std::vector<std::string> programs;
  for (const auto& [source, places] : found)
    programs.push_back(fmt::format("{} ({})", source->program, places.front().string()));
  throw usage_error("{} has files of {}: name one of the sources, as in runner import {} {}", named.string(),
                    join(programs, " and "), found.front().first->name, shell_word(named.string()));
}

ForeignRuns read_foreign_runs(const ForeignSource& source, const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw usage_error("there is no file {}", path.string());
  refuse_ledger(path);
  auto found = source.read(path);
  if (found.runs.empty())
    throw usage_error("{} has no runs{}{}", path.string(), found.notes.empty() ? "" : ": ", join(found.notes, "; "));
  if (!source.has_status) found.notes.push_back(source.program + " has no status of runs: they count as finished");
  for (auto& run : found.runs) {
    clean_texts(run);
    leave_out_secrets(run, found.notes);
    if (source.name == "csv") take_own_time(run);
    check_times(run, found.notes);
    check_tags(run, found.notes);
  }
  return found;
}

}  // namespace runner
