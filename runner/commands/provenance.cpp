#include "runner/commands/provenance.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/config/config.hpp"
#include "runner/config/secret_texts.hpp"
#include "runner/devices/devices.hpp"
#include "runner/ledger/edits.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/lua/hook_places.hpp"
#include "runner/report/run_differences.hpp"
#include "runner/selection/script_strategy.hpp"

namespace runner {

namespace {

/// The variables that change how a training computes or communicates, without the values that are secrets by name or by form.
nlohmann::json recorded_environment(Secrets& secrets) {
  static constexpr std::array<std::string_view, 13> beginnings = {"OMP_",  "MKL_",   "KMP_",   "GOMP_", "NCCL_",
                                                                  "CUDA_", "CUBLAS", "TORCH_", "GLOO_", "ONEDNN_",
                                                                  "DNNL_", "SLURM_", "ATEN_"};
  auto found = nlohmann::json::object();
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos &&
        std::ranges::any_of(beginnings, [&](std::string_view begin) { return text.starts_with(begin); }))
      found[std::string(text.substr(0, equals))] =
          is_secret_variable(text.substr(0, equals)) ? redacted
                                                     : secrets.take_from(escape_invalid_utf8(text.substr(equals + 1)));
  }
  return found;
}

/// How long the start of a run waits for git, which has run since the start of the command.
constexpr std::chrono::milliseconds start_patience(10);
constexpr std::chrono::milliseconds end_patience(1000);

/// Writes RUN_DIR/code.patch, or removes that of an earlier attempt. The ledger has the text too, so a failure stops nothing.
void write_patch(const fs::path& run_dir, const std::string& patch) try {
  if (patch.empty())
    fs::remove(run_dir / "code.patch");
  else
    write_file_atomic(run_dir / "code.patch", patch);
} catch (const std::exception& error) {
  log::warning("the changes of the code are only in the ledger: {}", error.what());
}

/// The id of the run in whose folder below home/runs `path` is; otherwise empty.
std::string run_of_path(const fs::path& path, const std::string& home) {
  const fs::path runs = fs::absolute(fs::path(home) / "runs").lexically_normal();
  const auto relative = fs::absolute(path).lexically_normal().lexically_relative(runs);
  return relative.empty() || *relative.begin() == ".." || *relative.begin() == "." ? "" : relative.begin()->string();
}

}  // namespace

std::vector<std::string> own_command_line() {
  auto text = read_file("/proc/self/cmdline");
  if (!text.empty() && text.back() == '\0') text.pop_back();
  return split(text, '\0');
}

NewRun run_row(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options) {
  NewRun run;
  if (recipe.origins.contains("run.name")) run.name = recipe.run.name;  // otherwise the ledger chooses one
  run.tags = recipe.run.tags;
  run.notes = recipe.run.notes;
  run.group = recipe.run.group;
  run.run_dir_root = (fs::absolute(home) / "runs").string();
  Secrets secrets;
  run.recipe_source = recipe_without_secrets(read_file(options.recipe_file), secrets);
  run.resolved = recipe_without_secrets(print_recipe(plan.recipe), secrets);
  run.config = recipe_to_json(plan.recipe);
  run.origins = origins_to_json(plan.recipe);
  run.plan = plan.to_json();
  run.strategy = plan.entry->name;
  run.world_size = plan.job.world_size();
  run.argv = own_command_line();
  run.build_id = build_id();
  run.host = to_json(facts_for(plan.recipe));
  run.sweep = options.sweep;
  run.trial = options.trial;
  return run;
}

nlohmann::json predicted(const Plan& plan) {
  nlohmann::json values = nlohmann::json::object();
  if (memory_known(*plan.entry)) values["memory_bytes_per_rank"] = plan.memory_bytes();
  if (memory_known(*plan.entry) && plan.job.accelerator.own_memory) values["host_bytes_per_rank"] = plan.host_bytes();
  if (plan.pipeline) values["pipeline_wait_percent"] = 100 * plan.pipeline->bubble();
  if (plan.step_seconds) {
    values["step_seconds"] = *plan.step_seconds;
    values["step_seconds_error"] = plan.step_error;
  }
  if (plan.load && plan.where) values["step"] = {{"load", plan.load->to_json()}, {"where", plan.where->to_json()}};
  return values;
}

nlohmann::json recipe_files(const Recipe& recipe) {
  nlohmann::json files = nlohmann::json::object();
  auto add = [&](const std::string& file) {
    if (file.empty() || !fs::is_regular_file(file)) return;
    const std::string path = fs::absolute(file).lexically_normal().string();
    if (!files.contains(path)) files[path] = xxh3_hex(read_file(path));
  };
  add(recipe.file);
  for (const auto& [key, origin] : recipe.origins)
    if (origin.kind == Origin::Kind::file) add(origin.file);
  return files;
}

std::vector<std::string> changed_recipe_files(const nlohmann::json& before) {
  std::vector<std::string> changed;
  for (const auto& [path, hash] : before.items()) {
    if (!fs::is_regular_file(path) || xxh3_hex(read_file(path)) == hash) continue;
    const auto relative = fs::path(path).lexically_relative(fs::current_path());
    changed.push_back(relative.empty() || *relative.begin() == ".." ? path : relative.string());
  }
  return changed;
}

void set_parent(const LaunchOptions& options, const StartPoint& start, const Recipe& recipe, const std::string& home,
                NewRun& run) {
  if (!options.rerun.is_null()) {
    run.parent = options.rerun.at("id");
    run.parent_kind = training_link::rerun;
  } else if (!start.checkpoint.empty()) {
    run.parent = fs::absolute(start.checkpoint).lexically_normal().parent_path().parent_path().filename();
    run.parent_kind = training_link::continued;
  } else if (recipe.model.init_from) {
    run.parent = run_of_path(*recipe.model.init_from, home);
    run.parent_kind = training_link::fine_tuned;
  }
}

void take_over(const nlohmann::json& before, NewRun& run) {
  run.recipe_source = before.at("recipe");
  if (before.contains("recipe_files")) run.annotations["recipe_files"] = before["recipe_files"];
  const auto was = different_keys(before.at("config"), run.config);
  const auto changed = [&](const std::string& key) {
    return std::ranges::any_of(was, [&](const Difference& entry) { return entry.key == key; });
  };
  for (const auto& [key, origin] : before.at("origins").items())
    if (!changed(key)) run.origins[key] = origin;
}

nlohmann::json Provenance::keep(const CodeState& code) {
  nlohmann::json git = secrets_.json_without(code.git);
  if (!code.patch.empty()) git["patch"]["kept"] = ledger_.keep(secrets_.without(code.patch));
  return git;
}

void Provenance::describe(const Recipe& recipe, NewRun& run) {
  std::vector<std::string> keys;
  secrets_.add_environment();
  secrets_.take_from(run.config, keys);
  secrets_.take_from(run.argv);
  if (const auto* code = code_.wait(start_patience)) run.git = keep(*code);
  auto scripts = nlohmann::json::object();
  const auto texts = lua::script_texts(recipe);
  for (const auto& [path, value] : texts.items()) {
    const std::string text = value;
    scripts[path] = xxh3_hex(text);
    if (secrets_.without(text) == text) ledger_.keep(text);
  }
  run.annotations["recipe_files"] = recipe_files(recipe);
  run.annotations["scripts"] = scripts;
  run.annotations["user"] = this_user();
  run.annotations["environment"] = recorded_environment(secrets_);
}

void Provenance::begin(const AttemptStart& attempt) {
  run_ = attempt.run;
  folder_ = attempt.folder;
  record({});
}

void Provenance::event(const std::string& kind, const nlohmann::json& fields) {
  if (kind == "inputs")
    ledger_.annotate(run_, kind, {{"data", fields.at("data")}, {"init_from", fields.at("init_from")}});
  // The last event of a rank: a very short run may end before git has answered.
  if (kind == "finished" || kind == "failed") record(end_patience);
}

void Provenance::record(std::chrono::milliseconds patience) {
  if (recorded_ || run_.empty()) return;
  const auto* code = code_.wait(patience);
  if (!code) return;
  recorded_ = true;
  ledger_.code(run_, keep(*code));
  write_patch(folder_, secrets_.without(code->patch));
}

}  // namespace runner
