// One run: its record, its plan beside what was measured, samples of its machine, its patch.
#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/launch/events.hpp"
#include "runner/ledger/curves.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr size_t patch_bytes_max = 2 << 20;

Ledger reading(const Api& api) { return Ledger(api.readers.home().string(), Ledger::Mode::read); }

/// The changes of the working tree that the run began with, if there were any.
std::optional<fs::path> patch_of(const fs::path& folder) {
  const fs::path file = folder / "code.patch";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored) || fs::is_symlink(file, ignored)) return {};
  return file;
}

/// The readings of one series in a part of the time: together they become one point.
struct Readings {
  int64_t index = -1, count = 0;
  double time = 0, seconds = 0, value = 0, low = 0, high = 0;

  void add(double at, double trained, double reading) {
    low = count == 0 ? reading : std::min(low, reading);
    high = count == 0 ? reading : std::max(high, reading);
    ++count;
    time += (at - time) / static_cast<double>(count);
    seconds += (trained - seconds) / static_cast<double>(count);
    value += (reading - value) / static_cast<double>(count);
  }
  void append_to(json& series) const {
    series["time"].push_back(time);
    series["seconds"].push_back(seconds);
    series["value"].push_back(json_number(value));
    series["low"].push_back(json_number(low));
    series["high"].push_back(json_number(high));
  }
};

}  // namespace

Response get_run(const Api& api, const Request&, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const Ledger ledger = reading(api);
  json run = ledger.show(id);
  run["best_checkpoint"] = api.hooks.best_checkpoint ? api.hooks.best_checkpoint(ledger, run) : json();
  json logs = json::array();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(run["run_dir"].get<std::string>()) / "logs", ignored))
    if (entry.is_regular_file(ignored))
      logs.push_back({{"file", entry.path().filename().string()}, {"bytes", entry.file_size(ignored)}});
  const auto order = [](const json& log) { return std::pair(log["file"] != "run.log", log["file"]); };
  std::sort(logs.begin(), logs.end(), [&](const json& a, const json& b) { return order(a) < order(b); });
  run["logs"] = std::move(logs);
  run["files"] = recorded_files(run);
  const auto patch = patch_of(run["run_dir"].get<std::string>());
  run["patch_bytes"] = patch ? json(fs::file_size(*patch, ignored)) : json();
  run["trouble"] = json::array();
  for (const auto& trouble : trouble_kinds) run["trouble"].push_back(std::string(trouble.kind));
  run["event_texts"] = json::array();
  for (const auto& event : run["events"])
    run["event_texts"].push_back(api.hooks.event_text ? api.hooks.event_text(event) : "");
  const auto origin = imported_from(api.readers.home().string(), id);
  run["imported_from"] = origin.empty() ? json() : json(origin);
  const double now = wall_seconds();
  run["seconds"] = run["started"].is_null() ? json() : json(seconds_taken(ledger.row(id), now));
  run["now"] = now;
  return json_response(std::move(run));
}

Response get_plan(const Api& api, const Request&, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const json run = reading(api).show(id);
  json profile, traces = json::array();
  for (const auto& event : run["events"])
    if (event["event"] == "profile") profile = event;
  for (auto& file : recorded_files(run))
    if (file["kind"] == "trace") traces.push_back(std::move(file));
  return json_response({{"id", id},
                        {"name", run["name"]},
                        {"status", run["status"]},
                        {"plan", run["plan"]},
                        {"predicted", run["predicted"]},
                        {"measured", run["measured"]},
                        {"metrics", run["metrics"]},
                        {"host", run["host"]},
                        {"profile", profile},
                        {"traces", traces},
                        {"world_size", run["world_size"]},
                        {"devices", run["config"].value("devices", json())}});
}

Response get_system(const Api& api, const Request& request, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const int64_t points = integer_parameter(request, "points", 600, 1, 10'000);
  const auto database = open_ledger(api);
  const int64_t run = run_row(*database, id);
  auto ends = database->query("SELECT min(time), max(time) FROM system_sample WHERE run = ?", run);
  json series = json::object();
  if (!ends.step() || ends.is_null(0)) return json_response({{"id", id}, {"series", series}});
  // Pauses between attempts have no readings, so they get no part of the points.
  const TrainedTime trained(*database, run);
  const double low = trained.at(ends.real(0));
  const double width = std::max(trained.at(ends.real(1)) - low, 1e-9) / static_cast<double>(points);
  sqlite::Statement name(*database, "SELECT name FROM key WHERE key = ?");
  auto rows = database->query("SELECT key, time, value FROM system_sample WHERE run = ? ORDER BY key, time", run);
  int64_t key = -1;
  json* one = nullptr;
  Readings part;
  while (rows.step()) {
    const double time = rows.real(1), seconds = trained.at(time);
    const auto index = std::min(points - 1, static_cast<int64_t>((seconds - low) / width));
    if (rows.integer(0) != key || index != part.index) {
      if (one) part.append_to(*one);
      part = {.index = index};
    }
    if (rows.integer(0) != key) {
      key = rows.integer(0);
      name.bind(key);
      one = name.step() ? &series[name.text(0)] : nullptr;
    }
    part.add(time, seconds, rows.real(2));
  }
  if (one) part.append_to(*one);
  return json_response({{"id", id}, {"series", series}});
}

Response get_patch(const Api& api, const Request&, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const auto file = patch_of(reading(api).run_dir(id));
  if (!file) throw ApiError(404, "the run has no patch: its code was committed, or git was not there");
  std::error_code ignored;
  if (fs::file_size(*file, ignored) > patch_bytes_max)
    throw ApiError(413, fmt::format("the patch is large; read {}", file->string()));
  return {.type = "text/plain; charset=utf-8", .body = read_file(*file)};
}

Response get_devices(const Api& api, const Request&, const Captures&) {
  return json_response({{"devices", api.hooks.device_kinds ? api.hooks.device_kinds() : std::vector<std::string>()}});
}

Response get_recommend(const Api& api, const Request& request, const Captures& captures) {
  if (!api.hooks.recommend) throw ApiError(503, "this program cannot plan");
  const std::string id = run_id(api, captures[0]);
  const json run = reading(api).show(id);
  const ImaginedDevices devices{.kind = request.parameter("device_kind"),
                                .devices = static_cast<int>(integer_parameter(request, "devices", 0, 0, 64)),
                                .num_nodes = static_cast<int>(integer_parameter(request, "num_nodes", 0, 0, 4096)),
                                .host_memory = request.parameter("host_memory")};
  if (!devices.host_memory.empty() && devices.kind.empty())
    throw ApiError(400, "host_memory is of imagined devices: it needs device_kind, too");
  return json_response(api.hooks.recommend(run, devices));
}

}  // namespace runner::ui
