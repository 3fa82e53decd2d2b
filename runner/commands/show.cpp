// `runner show`: prints the complete record of one run.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/checkpoint_choice.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run_choice.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/events.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/report/profile_table.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/run_differences.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"
#include "runner/report/terminal_chart.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

constexpr size_t events_shown = 5, events_hidden_min = 5, troubles_shown = 20, samples_shown = 3;

/// A field of an object; "" if it is missing or null.
std::string field(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || object[key].is_null()) return "";
  return plain(object[key]);
}

/// " (times of its first and last points)" for a run of a source that has no other times; otherwise "".
std::string times_of_points(const json& run) {
  const auto origin = imported_from(ledger_home(), plain(run["id"]));
  const bool only_points = origin.starts_with("tensorboard (") || origin.starts_with("csv (");
  return only_points ? " (times of its first and last points)" : "";
}

std::string status_line(const Ledger& ledger, const json& run, double now) {
  if (run["started"].is_null()) return fmt::format("{}, start and duration not known", plain(run["status"]));
  const double started = run["started"], ended = run["ended"].is_null() ? now : run["ended"].get<double>();
  const std::string took = format_duration(seconds_taken(ledger.row(run["id"]), now));
  std::string line = run["status"];
  if (run["status"] == "running") return line + fmt::format(" for {}, started {}", took, format_time(started));
  if (run["status"] == "lost")
    line += fmt::format(", last seen {}", format_ago(ended, now));
  else
    line += " " + format_ago(ended, now);
  line += fmt::format(", took {}, started {}{}", took, format_time(started), times_of_points(run));
  if (!run["exit_code"].is_null() && run["exit_code"] != 0)
    line += fmt::format(", exit code {}", run["exit_code"].get<int>());
  return line;
}

std::string git_line(const json& git) {
  if (git.is_null()) return "";
  std::string line = field(git, "commit").substr(0, 12);
  if (line.empty()) line = "no commit yet";
  if (const auto branch = field(git, "branch"); !branch.empty()) line += " on " + branch;
  if (git.value("dirty", json()) == true) line += ", with changes that are not committed";
  return line;
}

/// "fsdp on 2 ranks" for a run or an attempt; "" for an attempt without this information.
std::string strategy_on_ranks(const json& started) {
  if (started["strategy"].is_null()) return "";
  return fmt::format("{} on {}", plain(started["strategy"]), counted(started["world_size"], "rank"));
}

/// ", with mesh = { shard = 2, tensor = 2 }"; "" if the run had only a data axis.
std::string mesh_of(const json& run) {
  const json devices = run["config"].value("devices", json::object());
  const auto mesh = devices.find("mesh");
  return mesh == devices.end() || !mesh->is_object() ? "" : ", with mesh = " + toml_value(*mesh);
}

/// "CPU processes stood for 2 nodes of 4 devices"; "" if the run was not a simulation.
std::string simulation_line(const json& run) {
  const json devices = run["config"].value("devices", json::object());
  if (devices.value("simulate", json()) != true) return "";
  return fmt::format("CPU processes stood for {} of {}", counted(devices["num_nodes"], "node"),
                     counted(devices["devices"], "device"));
}

void print_section(const std::string& title, const std::vector<Column>& columns, const Rows& rows) {
  if (!rows.empty()) std::fputs(("\n" + title + "\n" + format_table(columns, rows)).c_str(), stdout);
}

/// The step and the last values, e.g. "4, val_loss 0.3, loss 1".
std::string progress_line(const json& run) {
  std::string line = run["steps"].dump();
  const std::string metric = run["metric"];
  if (metric != "loss" && !run["metric_value"].is_null())
    line += fmt::format(", {} {}", metric, quantity(metric, run["metric_value"]));
  if (!run["final_loss"].is_null()) line += ", loss " + quantity("loss", run["final_loss"]);
  return line;
}

/// The number of steps that were skipped because they were not finite. For a run that did not end normally, the last
/// recorded number, which may be too small.
std::string skipped_line(const json& run) {
  std::string count = field(run["measured"], "skipped_steps");
  for (auto event = run["events"].rbegin(); count.empty() && event != run["events"].rend(); ++event)
    if ((*event)["event"] == "skipped") count = "at least " + field(*event, "total");
  return count.empty() ? "" : fmt::format("{} of {} steps (train.on_nonfinite)", count, run["steps"].dump());
}

/// The reason why the run ended; for a failure, the complete message.
std::string why_line(const json& run) {
  const std::string why = field(run, "why"), message = field(run, "message");
  const auto first = first_line(message);
  return why.ends_with(first) ? why + message.substr(first.size()) : why;
}

std::string command_line(const json& argv) { return argv.is_null() ? "" : shell_words(argv); }

/// The command that began the run. Older programs recorded only that of the last attempt.
std::string first_command(const json& run) {
  const auto& attempts = run["attempts"];
  const auto first = attempts.empty() ? "" : command_line(attempts[0].value("argv", json()));
  return first.empty() ? command_line(run["argv"]) : first;
}

/// "20261125-1801-k3f9 (evaluated)" for each run that is linked to this one: of runs that read a model, or of trainings.
std::string edge_line(const json& edges, bool trainings) {
  std::vector<std::string> words;
  for (const auto& edge : edges)
    if (is_training_link(plain(edge["kind"])) == trainings)
      words.push_back(fmt::format("{} ({})", plain(edge["id"]), plain(edge["kind"])));
  return join(words, ", ");
}

/// The run on the MLflow server: "0a1b2c at http://127.0.0.1:5000/#/experiments/0/runs/0a1b2c".
std::string mlflow_line(const json& run) {
  const json there = run.value("mlflow", json());
  return there.is_object() ? fmt::format("{} at {}", field(there, "run"), field(there, "url")) : "";
}

/// "checkpoints/step-000400, val_loss 1.23"; "" if no checkpoint has a value of the metric.
std::string best_line(const json& best) {
  if (best.is_null()) return "";
  const std::string metric = best["metric"];
  std::string line = fmt::format("{}, {} {}", plain(best["path"]), metric, quantity(metric, best["value"]));
  if (best.contains("recorded_step"))
    line += fmt::format("; it was {} at step {}, which has no good checkpoint",
                        quantity(metric, best["recorded_value"]), best["recorded_step"].dump());
  return line;
}

/// "lr-study, trial 4"; "" if the run is no trial.
std::string sweep_line(const json& run) {
  const json sweep = run.value("sweep", json());
  return sweep.is_object() ? fmt::format("{}, trial {}", plain(sweep.at("name")), sweep.at("trial").dump()) : "";
}

std::string folder_line(const json& run) {
  const std::string folder = field(run, "run_dir");
  if (run["run_dir_exists"] == true) return folder;
  const auto origin = imported_from(ledger_home(), plain(run["id"]));
  return origin.empty() ? folder + " (moved or deleted)" : "none here: imported from " + origin;
}

void print_head(const Ledger& ledger, const json& run, double now) {
  const std::string reason = field(run["plan"], "reason"), restarts = field(run["measured"], "restarts");
  Rows rows = {{"status", status_line(ledger, run, now)},
               {"why", why_line(run)},
               {"strategy", strategy_on_ranks(run) + mesh_of(run) + (reason.empty() ? "" : ": " + reason)},
               {"simulated", simulation_line(run)},
               {"model of", edge_line(run["parents"], /*trainings=*/false)},
               {"used by", edge_line(run["children"], /*trainings=*/false)},
               {"parent", edge_line(run["parents"], /*trainings=*/true)},
               {"children", edge_line(run["children"], /*trainings=*/true)},
               {"steps", progress_line(run)},
               {"best", best_line(run["best_checkpoint"])},
               {"skipped", skipped_line(run)},
               {"data", field(run, "data_summary")},
               {"restarts", restarts == "0" ? "" : restarts},
               {"sweep", sweep_line(run)},
               {"group", field(run, "group")},
               {"mlflow", mlflow_line(run)},
               {"archived", run.value("archived", json()) == true ? "yes" : ""},
               {"tags", join(run["tags"].get<std::vector<std::string>>(), ", ")},
               {"notes", field(run, "notes")},
               {"folder", folder_line(run)},
               {"command", first_command(run)},
               {"resumed", first_command(run) == command_line(run["argv"]) ? "" : command_line(run["argv"])},
               {"from", field(run, "working_directory")},
               {"code", git_line(run["git"])},
               {"build", field(run, "build_id")}};
  std::erase_if(rows, [](const auto& row) { return row[1].empty(); });
  for (auto& row : rows) row[0] = "  " + row[0];
  std::printf("%s  %s\n%s", one_line(plain(run["name"])).c_str(), plain(run["id"]).c_str(),
              format_table({{}, {.may_shrink = true}}, rows).c_str());
}

void print_curve(const Ledger& ledger, const json& run, const std::string& metric) {
  if (!run["metrics"].contains(metric)) return;
  const int width = terminal_width(STDOUT_FILENO);
  const int columns = width > 0 ? std::clamp(width - 16, 20, 100) : 60;
  std::printf("\n%s\n%s", metric.c_str(),
              draw_curve(ledger.points(run["id"], metric), {columns, 6}, utf8_locale()).c_str());
}

void print_metrics(const json& run) {
  Rows rows;
  for (const auto& [name, value] : run["metrics"].items())
    rows.push_back(
        {"  " + name, quantity(name, value["last"]), quantity(name, value["min"]), quantity(name, value["max"])});
  print_section("metrics", {{}, {"last", true}, {"min", true}, {"max", true}}, rows);
}

/// Prints predicted values with the measured values of the same name. NAME_error is the relative error of NAME.
void print_prediction(const json& run) {
  Rows rows;
  if (run["predicted"].is_object())
    for (const auto& [name, value] : run["predicted"].items())
      if (!value.is_structured() && !name.ends_with("_error")) {
        const json measured = run["measured"].is_object() ? run["measured"].value(name, json()) : json();
        const json error = run["predicted"].value(name + "_error", json());
        const std::string bar =
            error.is_number() ? fmt::format(" {}{:.0f} %", utf8_locale() ? "±" : "+-", 100 * error.get<double>()) : "";
        rows.push_back({"  " + name, quantity(name, value) + bar, quantity(name, measured)});
      }
  print_section("prediction", {{}, {"predicted", true}, {"measured", true}}, rows);
  if (run["predicted"].is_object() && run["predicted"].contains("pipeline_wait_percent"))
    std::printf(
        "  pipeline_wait_percent: how much of a step ranks wait for other stages, on average. Predicted: the bubble of "
        "the schedule; measured: in transfers between stages (with run.profiler)\n");
}

/// The use of the machine, over all readings.
void print_system(const json& run) {
  Rows rows;
  int64_t readings = 0;
  for (const auto& [name, value] : run["system"].items()) {
    readings = std::max(readings, value["count"].get<int64_t>());
    if (name.ends_with("/throttled"))
      rows.push_back(
          {"  " + name + ", of the time", fmt::format("{:.0f} %", 100 * value["mean"].get<double>()), "", ""});
    else
      rows.push_back(
          {"  " + name, quantity(name, value["mean"]), quantity(name, value["min"]), quantity(name, value["max"])});
  }
  print_section(fmt::format("system ({})", counted(readings, "reading")),
                {{}, {"mean", true}, {"least", true}, {"peak", true}}, rows);
}

void print_checkpoints(const json& run, double now) {
  Rows rows;
  for (const auto& checkpoint : run["checkpoints"])
    if (checkpoint["exists"] == true)
      rows.push_back({"  " + plain(checkpoint["path"]), format_ago(checkpoint["time"], now),
                      checkpoint.contains("bytes") ? quantity("bytes", checkpoint["bytes"]) : ""});
  print_section("checkpoints", {{}, {}, {"", true}}, rows);
}

void print_attempts(const json& run, double now) {
  if (run["attempts"].size() < 2) return;
  std::map<std::string, std::string> settings;  // of attempts that differ from the last one
  for (const auto& [number, differences] : changed_settings(run))
    for (const auto& entry : differences)
      settings[number] +=
          fmt::format("{} {} = {}", settings[number].empty() ? ", with" : ",", entry.key, plain(entry.a));
  Rows rows;
  for (const auto& attempt : run["attempts"]) {
    const double started = attempt["started"],
                 ended = attempt["ended"].is_null() ? now : attempt["ended"].get<double>();
    rows.push_back({"  " + attempt["number"].dump(), format_ago(started, now),
                    format_duration(std::max(0.0, ended - started)),
                    fmt::format("process {} on {}", attempt["pid"].get<int64_t>(), plain(attempt["host"])),
                    strategy_on_ranks(attempt), field(attempt, "reason") + settings[attempt["number"].dump()]});
  }
  print_section("attempts", {{}, {}, {"", true}, {}, {}, {.may_shrink = true}}, rows);
}

void print_profile(const json& run) {
  const auto& events = run["events"];
  for (auto event = events.rbegin(); event != events.rend(); ++event)
    if ((*event)["event"] == "profile") {
      std::fputs(("\n" + profile_text(*event)).c_str(), stdout);
      return;
    }
}

/// Whether the event is a generated text.
bool is_sample(const json& event) { return event["event"] == "sample" && event.contains("text"); }

/// The newest generated texts.
void print_samples(const json& run) {
  std::vector<const json*> samples;
  for (const auto& event : run["events"])
    if (is_sample(event)) samples.push_back(&event);
  if (samples.empty()) return;
  const size_t first = samples.size() > samples_shown ? samples.size() - samples_shown : 0;
  std::string out =
      first == 0 ? "\nsamples\n" : fmt::format("\nsamples ({} of {}; --json has all)\n", samples_shown, samples.size());
  for (size_t i = first; i < samples.size(); ++i) {
    out += fmt::format("  step {}\n", field(*samples[i], "step"));
    for (const auto& line : split(trim(field(*samples[i], "text")), '\n')) out += "    " + line + "\n";
  }
  std::fputs(terminal_text(out).c_str(), stdout);
}

/// Signs of trouble are always shown. Other sections have the memory of ranks and generated texts.
void print_events(const json& run, double now) {
  const auto is_trouble = [](const json& event) { return find_trouble(plain(event["event"])) != nullptr; };
  std::vector<const json*> events;
  for (const auto& event : run["events"])
    if (event["event"] != "memory" && !is_sample(event)) events.push_back(&event);
  const size_t recent = events.size() >= events_shown + events_hidden_min ? events.size() - events_shown : 0;
  size_t troubles = 0;
  for (size_t i = 0; i < recent; ++i) troubles += is_trouble(*events[i]) ? 1 : 0;
  size_t left_out = troubles > troubles_shown ? troubles - troubles_shown : 0;
  Rows rows;
  for (size_t i = 0; i < events.size(); ++i) {
    const json& event = *events[i];
    if (i < recent && (!is_trouble(event) || (left_out > 0 && left_out-- > 0))) continue;
    rows.push_back({"  " + format_ago(event["time"], now), plain(event["event"]), event_text(event)});
  }
  const std::string title = rows.size() < events.size()
                                ? fmt::format("events ({} of {}; --json has all)", rows.size(), events.size())
                                : "events";
  print_section(title, {{}, {}, {.may_shrink = true}}, rows);
}

/// The audit trail: what was edited after the start.
void print_changes(const json& run, double now) {
  if (!run.contains("changes")) return;
  Rows rows;
  for (const auto& change : run["changes"])
    rows.push_back({"  " + format_ago(change["time"], now), field(change, "who"), field(change, "what"),
                    fmt::format("{} -> {}", field(change, "before"), field(change, "after"))});
  print_section("changes", {{}, {}, {}, {.may_shrink = true}}, rows);
}

void print_run(const Ledger& ledger, const json& run) {
  const double now = wall_seconds();
  print_head(ledger, run, now);
  print_curve(ledger, run, "loss");
  print_curve(ledger, run, "val_loss");
  print_metrics(run);
  print_system(run);
  print_prediction(run);
  print_profile(run);
  print_checkpoints(run, now);
  print_attempts(run, now);
  print_changes(run, now);
  print_samples(run);
  print_events(run, now);
}

ExitCode show(const std::vector<std::string>& words, bool as_json) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto ids = chosen_runs(ledger, words);
  json list = json::array();
  for (const auto& id : ids) {
    json run = ledger.show(id);
    run["best_checkpoint"] = best_checkpoint_of(ledger, run);
    if (!as_json) {
      if (id != ids.front()) std::puts("");
      print_run(ledger, run);
    }
    list.push_back(std::move(run));
  }
  if (!as_json) return ExitCode::done;
  json out = ids.size() == 1 ? list[0] : json{{"runs", list}};
  out["schema"] = 1;
  // The source of a recipe in Lua may have comments that are not UTF-8.
  print_json(out);
  return ExitCode::done;
}

}  // namespace

Action setup_show(CLI::App& app) {
  struct Options {
    std::vector<std::string> runs = {"last"};
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  add_runs_option(app, options->runs);
  add_json_option(app, options->json);
  app.footer("--json prints one object; for several runs, {\"runs\": [...]}.");
  return [options] { return show(options->runs, options->json); };
}

}  // namespace runner
