// `runner resume` and `runner rerun`: train recorded runs, further or again.
#include <algorithm>
#include <memory>
#include <optional>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/checkpoint/manifest.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/requeued_job.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/devices/devices.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/git_state.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/run_differences.hpp"

namespace runner {

namespace {

using nlohmann::json;

// ---- secret values of a recorded recipe, for which "***" stands

/// Whether an override sets or removes the key, or something that contains it: "logging.notify=..." for logging.notify.webhook.
bool replaces(const std::string& override_text, const std::string& key) {
  for (size_t end = key.size(); end != std::string::npos && end > 0; end = key.rfind('.', end - 1)) {
    const std::string part = key.substr(0, end);
    if (override_text.starts_with(part + "=") || override_text == unset_override(part)) return true;
  }
  return false;
}

/// The keys whose values the ledger does not keep. `run`: as in `runner show --json`.
std::vector<std::string> secret_keys(const nlohmann::json& run) {
  const auto keys = run.find("redacted");
  return keys != run.end() && keys->is_array() ? keys->get<std::vector<std::string>>() : std::vector<std::string>();
}

/// Throws Error(usage) unless the overrides (--set, --unset) replace each of these values.
void need_secret_values(const nlohmann::json& run, const std::vector<std::string>& overrides) {
  for (const auto& key : secret_keys(run))
    if (std::ranges::none_of(overrides, [&](const auto& text) { return replaces(text, key); }))
      throw usage_error(
          "run {} had a secret value of {}, which neither the ledger nor its folder has: give it with --set {}=VALUE",
          run.at("id").get<std::string>(), key, key);
}

// ---- resume

/// Waits for the processes with which a requeued job trained the run before, if they are on another host.
void wait_for_earlier(const std::string& run) {
  wait_if_requeued("run " + run,
                   [&] { return Ledger(ledger_home(), Ledger::Mode::read).row(run).status != "running"; });
}

// ---- rerun

json value_or_null(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

std::string then_and_now(const std::string& what, const json& then, const json& now) {
  const auto text = [](const json& value) { return value.is_null() ? "none" : plain(value); };
  return fmt::format("{}: {} then, {} now", what, text(then), text(now));
}

void compare_build_and_hardware(const json& run, const Recipe& recipe, std::vector<std::string>& differences) {
  if (run.at("build_id") != build_id())
    differences.push_back(then_and_now("program (build id)", run.at("build_id"), build_id()));
  const auto changed = different_keys(hardware_of(run.at("host")), hardware_of(to_json(facts_for(recipe))));
  for (const auto& [key, then, now] : changed) differences.push_back(then_and_now("hardware, " + key, then, now));
}

/// Untracked files are not compared: a run itself makes some.
void compare_code(const json& run, std::vector<std::string>& differences) {
  const json& then = run.at("git");
  const json now = read_code_state(fs::current_path()).git;
  if (then.is_null() && now.is_null()) return;
  if (value_or_null(then, "commit") != value_or_null(now, "commit"))
    differences.push_back(then_and_now("code, commit", value_or_null(then, "commit"), value_or_null(now, "commit")) +
                          fmt::format(" (then in {})", plain(run.at("working_directory"))));
  const bool has_patch = then.is_object() && then.contains("patch");
  const auto changes = [&](const json& git) {
    return has_patch ? value_or_null(value_or_null(git, "patch"), "digest") : value_or_null(git, "diff_hash");
  };
  if (changes(then) != changes(now))
    differences.push_back(then_and_now("code, digest of the uncommitted changes", changes(then), changes(now)));
}

/// Compares digests of files one by one; files are known by their position.
void compare_digests(const std::string& what, const json& then, const json& now,
                     std::vector<std::string>& differences) {
  if (!then.is_array() || !now.is_array() || then.size() != now.size()) {
    if (then != now) differences.push_back(then_and_now(what, then, now));
    return;
  }
  for (size_t i = 0; i < then.size(); ++i)
    if (then[i].at("xxh3") != now[i].at("xxh3"))
      differences.push_back(then_and_now(fmt::format("{}, digest of {}", what, plain(now[i].at("path"))),
                                         then[i].at("xxh3"), now[i].at("xxh3")));
}

void compare_inputs(const json& run, const Recipe& recipe, std::vector<std::string>& differences) {
  const json inputs = value_or_null(run, "inputs");
  if (inputs.is_null()) return differences.push_back("data: the run recorded no digests of its data");
  const std::string cache = data_cache();
  json then = inputs.at("data"), now = short_meaning(data_meaning(recipe, 0, cache));
  compare_digests("data", value_or_null(then, "files"), value_or_null(now, "files"), differences);
  then.erase("files");
  now.update(validation_meaning(recipe.data, cache));
  for (const auto& change : changed_meaning(then, now)) differences.push_back("data: " + change);
  const json weights = recipe.model.init_from ? weight_digests(*recipe.model.init_from, cache) : json();
  compare_digests("model.init_from", inputs.at("init_from"), weights, differences);
}

/// A run that was resumed with other settings cannot be repeated from its first step.
void compare_attempts(const json& run, std::vector<std::string>& differences) {
  for (const auto& attempt : changed_settings(run)) differences.push_back("settings: " + to_text(attempt));
}

/// The resolved recipe, without what the overrides replace. Secret values are those of the run's folder, or of --set.
std::string resolved_recipe(const json& run, const std::vector<std::string>& overrides) {
  const auto secrets = secret_keys(run);
  const fs::path file = fs::path(run.at("run_dir").get<std::string>()) / "resolved.toml";
  if (!secrets.empty() && fs::exists(file)) {
    const std::string text = read_file(file);
    if (text.find(redacted) == std::string::npos) return text;  // a bundle brings the text without the secrets
  }
  need_secret_values(run, overrides);
  return run.at("resolved");
}

/// Replaces the paths of scripts that have changed or are gone by copies of the kept texts below `home`.
std::string with_kept_scripts(std::string recipe, const Ledger& ledger, const json& run, const fs::path& home,
                              std::vector<std::string>& differences) {
  const json scripts = value_or_null(run, "scripts");
  if (!scripts.is_object()) return recipe;
  for (const auto& [path, digest] : scripts.items()) {
    const bool there = fs::is_regular_file(path);
    if (there && xxh3_hex(read_file(path)) == digest) continue;
    const auto kept = ledger.kept(digest);
    if (!kept) {  // the text contained a secret value
      if (there) differences.push_back(then_and_now("script, digest of " + path, digest, xxh3_hex(read_file(path))));
      continue;  // the recipe's own check reports a missing file
    }
    const fs::path copy = fs::absolute(home) / "files" / digest.get<std::string>() / fs::path(path).filename();
    fs::create_directories(copy.parent_path());
    if (!fs::exists(copy)) write_file_atomic(copy, *kept);
    log::info("note: {} {}; this run uses the text of then, {}", path, there ? "has changed" : "is gone",
              copy.string());
    for (size_t at = 0; (at = recipe.find(path, at)) != std::string::npos; at += copy.string().size())
      recipe.replace(at, path.size(), copy.string());
  }
  return recipe;
}

/// The checkpoint that the run started from, when it began or was last trained from the beginning; empty: none. A run that was killed
/// before its first attempt has it in its row.
std::string first_start(const json& run) {
  const std::string begin = "resume from ";
  std::optional<std::string> start;
  for (const auto& attempt : run.at("attempts")) {
    if (!attempt.at("reason").is_string()) continue;
    const std::string reason = attempt.at("reason");
    if (reason == "start" || !start) start = reason.starts_with(begin) ? reason.substr(begin.size()) : "";
  }
  if (start) return *start;
  const json recorded = value_or_null(run, "start");
  return recorded.is_string() ? recorded.get<std::string>() : "";
}

/// Another checkpoint may have its name.
void compare_start(const json& run, const std::string& start, std::vector<std::string>& differences) {
  const json then = value_or_null(run, "start_digest");
  if (start.empty() || !then.is_string()) return;
  if (const auto now = manifest_digest(start); now != then)
    differences.push_back(then_and_now("checkpoint that it starts from, digest of its manifest", then, now));
}

void refuse_or_note(const json& run, const std::vector<std::string>& differences, bool exact) {
  if (exact && !differences.empty())
    throw environment_error("run {} cannot be repeated exactly:\n  {}\nWithout --exact, it is trained again as it is",
                            plain(run.at("id")), join(differences, "\n  "));
  for (const auto& difference : differences) log::info("note: not as in run {}: {}", plain(run.at("id")), difference);
}

void check_is_training(const json& run) {
  if (trains(plain(run.at("strategy")))) return;
  throw usage_error(
      "run {} trained nothing: it is one of `runner {}`, which shows its command line in `runner show {}`",
      plain(run.at("id")), plain(run.at("strategy")), plain(run.at("id")));
}

/// --exact takes no overrides but those of secret values.
void check_overrides(const LaunchOptions& options) {
  const auto secrets = secret_keys(options.rerun);
  for (const auto& text : options.overrides)
    if (std::ranges::find(secrets, text.substr(0, text.find('='))) == secrets.end())
      throw usage_error("--exact trains what was recorded, so it takes no --set and no --unset");
}

/// The error with its mistakes in the run's recorded recipe instead of the temporary file `file`.
RecipeError in_record_of(const std::string& run, const std::string& file, const RecipeError& error) {
  auto diagnostics = error.diagnostics();
  for (auto& diagnostic : diagnostics)
    for (auto* place : {&diagnostic.place, diagnostic.other ? &*diagnostic.other : nullptr})
      if (place && place->file == file) place->file = "recipe of run " + run;
  return RecipeError(std::move(diagnostics));
}

ExitCode rerun(LaunchOptions& options, const std::string& wanted, bool exact) {
  const std::string home = ledger_home();
  const ScratchFolder scratch(fs::temp_directory_path());
  options.recipe_file = (scratch.path() / "recipe.toml").string();
  std::vector<std::string> differences;
  {
    const Ledger ledger(home, Ledger::Mode::read);
    options.rerun = ledger.show(ledger.find_run(wanted));
    if (plain(options.rerun.at("resolved")).empty())
      throw usage_error("run {} cannot be trained again: it was imported from {}, and has no recipe",
                        plain(options.rerun.at("id")), imported_from(home, plain(options.rerun.at("id"))));
    check_is_training(options.rerun);
    if (exact) check_overrides(options);
    const std::string recipe = resolved_recipe(options.rerun, options.overrides);
    write_file_atomic(options.recipe_file, with_kept_scripts(recipe, ledger, options.rerun, home, differences));
  }
  options.resume_checkpoint = first_start(options.rerun);
  try {
    const Recipe recipe = load_ready_recipe(options.recipe_file, options.overrides);
    compare_build_and_hardware(options.rerun, recipe, differences);
    compare_code(options.rerun, differences);
    compare_attempts(options.rerun, differences);
    compare_start(options.rerun, options.resume_checkpoint, differences);
    compare_inputs(options.rerun, recipe, differences);
  } catch (const RecipeError& error) {
    throw in_record_of(plain(options.rerun.at("id")), options.recipe_file, error);
  }
  refuse_or_note(options.rerun, differences, exact);
  log::info("training run {0} again; afterwards, `runner diff {0} last` compares the two",
            plain(options.rerun.at("id")));
  return launch_run(options);
}

}  // namespace

Action setup_resume(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  auto wanted = std::make_shared<std::string>("last");
  add_run_option(app, *wanted);
  auto* checkpoint = app.add_option("--checkpoint", options->resume_checkpoint,
                                    "A checkpoint folder of the run; default the newest good one");
  app.add_flag("--from-beginning", options->from_beginning,
               "Train again from the first step, although the run has or had checkpoints")
      ->excludes(checkpoint);
  add_launch_options(app, *options);
  return launch_action(options, [options, wanted] {
    {
      Ledger ledger(ledger_home(), Ledger::Mode::read);
      options->resume_run = ledger.find_run(*wanted);
    }
    wait_for_earlier(options->resume_run);
    {
      Ledger ledger(ledger_home(), Ledger::Mode::read);
      options->resumed = ledger.show(options->resume_run);
      needed_folder(ledger, options->resume_run, "resumed");
    }
    const fs::path folder = options->resumed.at("run_dir").get<std::string>();
    options->recipe_file = (folder / "recipe.toml").string();
    // A run that was killed right after its row was written has no file yet.
    const bool has_file = fs::exists(options->recipe_file);
    const std::string recipe =
        has_file ? read_file(options->recipe_file) : options->resumed.at("resolved").get<std::string>();
    if (recipe.find(redacted) != std::string::npos) need_secret_values(options->resumed, options->overrides);
    if (!has_file) write_file_atomic(options->recipe_file, recipe);
    return launch_run(*options);
  });
}

Action setup_rerun(CLI::App& app) {
  auto options = std::make_shared<LaunchOptions>();
  auto wanted = std::make_shared<std::string>("last");
  auto exact = std::make_shared<bool>(false);
  add_run_option(app, *wanted);
  app.add_flag("--exact", *exact,
               "Refuse if program, hardware, code, data or settings are not those of the run, and name each");
  add_launch_options(app, *options);
  app.footer(
      "Trains the run again from its first step, as a new run that is linked to it. Everything comes from the ledger, "
      "so the run's\n"
      "folder is not needed. What is not as it was is printed as notes. `runner diff RUN last` compares the two.");
  return launch_action(options, [options, wanted, exact] { return rerun(*options, *wanted, *exact); });
}

}  // namespace runner
