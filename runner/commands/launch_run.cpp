// Runs a recipe: plan, ledger row, run folder, supervised workers, progress, result.
#include <unistd.h>

#include <exception>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/outside_fault.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/commands/attempts.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/checkpoint_plugin.hpp"
#include "runner/commands/elastic_nodes.hpp"
#include "runner/commands/place.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/provenance.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/run_record.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/config/config.hpp"
#include "runner/config/schedule.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_check.hpp"
#include "runner/data/token_parts.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/elastic_members.hpp"
#include "runner/launch/follower.hpp"
#include "runner/launch/lines.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/lua/hook_places.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// The settings that must be equal on all supervisors of a run, without secret values, which are sent to nobody.
Introduction introduce(const Recipe& recipe, const Place& place, const LaunchOptions& options) {
  Secrets secrets;
  secrets.add_environment();
  std::vector<std::string> hidden;
  auto alike = secrets.json_without(secrets.take_from(recipe_to_json(recipe), hidden));
  alike["runner"] = {{"build", build_id()},
                     {"resumes", options.resume_run},
                     {"from_checkpoint", options.resume_checkpoint},
                     {"from_beginning", options.from_beginning}};
  // The leader of an elastic run decides it, and a node may join a run that has been resumed long ago.
  if (place.placement.elastic) alike["train"].erase("micro_batch_size");
  const auto& accelerator = place.topology.accelerator;
  alike["devices here"] = {{"accelerator", accelerator.type},
                           {"bf16", place.topology.bf16},
                           {"collectives", accelerator.collectives},
                           {"streams", accelerator.streams}};
  return {place.placement, read_facts().hostname, alike, nodes_secret()};
}

/// The number of sequences of a step that an elastic run keeps when it is resumed: if other nodes than num_nodes
/// trained last, resolved.toml has it as the global batch. Empty if the user sets another size, now or in the recipe.
std::optional<int64_t> kept_step_size(const Recipe& recipe, const LaunchOptions& options) {
  const fs::path file = fs::path(options.recipe_file).parent_path() / "resolved.toml";
  if (options.resume_run.empty() || !recipe.devices.elastic() || recipe.train.global_batch_size || !fs::exists(file))
    return std::nullopt;
  if (std::ranges::count(unset_keys(options.overrides), "train.global_batch_size")) return std::nullopt;
  const auto before = load_recipe(options.recipe_file).train;  // without the overrides
  if (before.global_batch_size || before.accumulate_grad_batches != recipe.train.accumulate_grad_batches)
    return std::nullopt;
  return load_recipe(file.string()).train.global_batch_size;
}

/// Keeps the number of sequences per step of a resumed run if it depends on an automatically chosen micro-batch. A run
/// that was killed before its plan was written has made no step.
void keep_micro_batch(Recipe& recipe, const LaunchOptions& options) {
  if (options.resume_run.empty() || recipe.train.micro_batch_size != Recipe::automatic ||
      recipe.train.global_batch_size || kept_step_size(recipe, options))
    return;
  const fs::path file = fs::path(options.recipe_file).parent_path() / "plan.json";
  if (!fs::exists(file)) return;
  auto plan = nlohmann::json::parse(read_file(file));
  recipe.train.micro_batch_size = plan.at("micro_batch_size").get<int64_t>();
  recipe.origins["train.micro_batch_size"] =
      decided("the size that the run began with, so that a step keeps its number of sequences");
}

/// The recipe of an elastic run with kept_step_size(). Only the leader needs it: it is not compared between nodes, and the run's
/// recipe.toml, which nodes that join later read, does not have it.
Recipe keep_step_size(Recipe recipe, const LaunchOptions& options) {
  const auto kept = kept_step_size(recipe, options);
  if (!kept) return recipe;
  recipe.train.global_batch_size = kept;
  recipe.train.accumulate_grad_batches.reset();
  recipe.origins.erase("train.accumulate_grad_batches");
  recipe.origins["train.global_batch_size"] = decided("the sequences of a step with which the run trained before");
  return recipe;
}

/// Labels of a resumed run keep their order, also if model.init_from, which may have decided it, is gone.
void keep_label_order(Recipe& recipe, const LaunchOptions& options) {
  const fs::path file = fs::path(options.recipe_file).parent_path() / "resolved.toml";
  if (options.resume_run.empty() || !fs::exists(file)) return;
  recipe.model.label_order = load_recipe(file.string()).model.labels;
}

/// Throws RecipeError for mistakes that `runner check` would report. A run that starts from a checkpoint does not read
/// model.init_from, which may be gone.
void refuse_bad_inputs(Recipe recipe, const StartPoint& start) {
  if (!start.checkpoint.empty()) recipe.model.init_from.reset();
  std::vector<Diagnostic> diagnostics;
  check_inputs(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  for (const auto& note : input_notes(recipe)) log::warning("{}", note);
}

/// A recipe with mistakes is refused before its inputs are looked at; those in its data are told at the same time.
void add_mistakes_in_data(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (!diagnostics.empty()) check_inputs(recipe, diagnostics);
}

/// Tokenizes text data if needed; with data.streaming the first part, and the others in the background.
std::unique_ptr<BackgroundTokenizing> prepare_text(const Recipe::Data& data, const std::string& cache_dir) {
  return needs_tokenizing(data) ? begin_preparing(data, cache_dir) : nullptr;
}

void look_at_disk(const Plan& plan, const fs::path& home, const fs::path& run_dir) {
  auto space = free_bytes(home);
  if (!space) return;
  auto existing = run_dir.empty() ? 0 : std::ssize(list_checkpoints(run_dir / "checkpoints"));
  if (auto note = disk_space_note(plan, *space, existing); !note.empty()) log::warning("{}", note);
}

/// Prints a note if the learning rate jumps at the step from which the run resumes. Compares with the old
/// resolved.toml, so it must be called before RunFolder::write().
void note_rate_change(const fs::path& run_dir, const Recipe& now, int64_t step) {
  auto file = run_dir / "resolved.toml";
  if (!fs::exists(file)) return;
  auto note = rate_change_note(load_recipe(file.string()), now, step);
  if (!note.empty()) log::info("note: {}", note);
}

/// The options of `runner resume` with which a finished run can be trained further.
std::string how_to_extend(const nlohmann::json& run, const Recipe& recipe) {
  const std::string why = run.at("why");
  if (why.find(" by train.max_time") != std::string::npos) return "--set train.max_time=LONGER";
  if (why.find(" by hook early_stopping:") != std::string::npos && recipe.train.early_stopping)
    return "--unset train.early_stopping";
  if (!why.empty()) {
    std::string options;  // of the hook that stopped it
    for (const auto& [hook, values] : recipe.hooks.options.items())
      if (why.find(" by hook " + hook + ":") != std::string::npos) options = " --unset hooks." + hook;
    return "--set 'hooks.files=[...]'" + options + ", without the hook that stopped it";
  }
  return recipe.train.max_steps ? "--set train.max_steps=N" : "--set train.max_epochs=N";
}

/// Whether the run to resume has finished and the new options do not make it longer.
bool nothing_left(const LaunchOptions& options, const Recipe& recipe) {
  if (options.resume_run.empty() || options.resumed.at("status") != "finished" || !options.resume_checkpoint.empty() ||
      options.from_beginning)
    return false;
  const std::string why = options.resumed.at("why");
  const bool out_of_time = why.find(" by train.max_time") != std::string::npos;
  const auto longer = [](const std::string& text) { return text.find("max_time") != std::string::npos; };
  if (out_of_time && std::ranges::none_of(options.overrides, longer)) return true;
  // A hook that stopped the run may have changed since then.
  if (!lua::changed_scripts(recipe, fs::path(options.recipe_file).parent_path()).empty()) return false;
  return options.overrides.empty() || recipe.train.max_steps == options.resumed.at("steps").get<int64_t>();
}

ExitCode tell_nothing_left(const LaunchOptions& options, const Recipe& recipe) {
  const auto& run = options.resumed;
  const std::string why = run.at("why");
  log::info("run {} has finished after {}{}: nothing is left to do", options.resume_run,
            counted(run.at("steps"), "step"), why.empty() ? "" : " (" + why + ")");
  auto others = options.overrides;
  std::erase_if(others, [](const std::string& text) { return text.starts_with("train.max_steps="); });
  if (!others.empty()) log::info("no step uses the new settings: {}", join(others, ", "));
  log::info("to train further: runner resume {} {}", options.resume_run, how_to_extend(run, recipe));
  if (options.json) print_json(run.at("measured"));
  return ExitCode::done;
}

void note_edited_recipe(const LaunchOptions& options) {
  for (const auto& file : changed_recipe_files(options.resumed.value("recipe_files", nlohmann::json::object())))
    log::info("note: {} has changed since the run began; the run keeps its own copy (--set changes it)", file);
}

std::string where_it_starts(const LaunchOptions& options, const StartPoint& start) {
  if (!start.checkpoint.empty()) return "continuing from " + start.checkpoint;
  const auto steps = options.resumed.value("steps", int64_t{0});
  const auto checkpoints = list_checkpoints(fs::path(options.recipe_file).parent_path() / "checkpoints");
  if (options.from_beginning && steps > 0)
    return fmt::format("starting from the beginning: this removes the record of {}{}", counted(steps, "step"),
                       checkpoints.empty() ? ""
                                           : fmt::format(", and later resumes do not use the {} written so far",
                                                         counted(std::ssize(checkpoints), "checkpoint")));
  if (options.from_beginning) return "starting from the beginning";
  return fmt::format("no checkpoint {}: starting from the beginning",
                     checkpoints.empty() ? "yet" : "since the run was started again from the beginning");
}

/// Restores the run's earlier settings after a failed resume that made no step: the new ones may be the cause of the
/// failure. Those of another process that has resumed the run stay.
void drop_unused_settings(const RunFolder& folder, RunRecord& record) {
  if (record.made_step() || record.taken_up()) return;
  record.put_back();
  if (folder.put_back()) log::info("the settings of this attempt are not kept, because it made no step");
}

Outcome failure_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return {known->code(), "failed", error.what()};
  if (const auto fault = outside_fault(error)) return {fault->code(), "failed", fault->what()};
  return {ExitCode::run_failed, "failed", error.what()};
}

void check_fast_dev_run(const LaunchOptions& options, const Recipe& recipe) {
  if (recipe.run.fast_dev_run > 0 && !options.resume_run.empty())
    throw usage_error(
        "run.fast_dev_run tries a recipe in a temporary folder, so it cannot continue run {}: remove it from --set",
        options.resume_run);
}

/// The temporary home of run.fast_dev_run; null for other runs, whose home is ledger_home(). All supervisors must see it.
std::unique_ptr<ScratchFolder> scratch_of(const Recipe& recipe, bool several_supervisors) {
  if (recipe.run.fast_dev_run == 0) return nullptr;
  return std::make_unique<ScratchFolder>(several_supervisors ? fs::absolute(ledger_home()) : fs::temp_directory_path());
}

/// Runs rank 0's supervisor, which plans the run and records it. Mistakes are reported before the record changes.
/// Tokenizing comes last, because it may take long.
Outcome lead_run(const LaunchOptions& options, const Recipe& recipe, const Place& place, Members* members,
                 ElasticNodes* elastic, double started) {
  check_fast_dev_run(options, recipe);
  const auto shown = std::make_shared<RunLog>();
  CodeReader code(fs::current_path());
  const auto scratch = scratch_of(recipe, members != nullptr);
  const std::string home = (scratch ? scratch->path() : fs::absolute(ledger_home())).string();
  const std::string cache_dir = data_cache();
  const auto store = open_checkpoint_store(recipe);
  // A run that another process still trains is refused below; its folder must not be touched before.
  const bool continues = !options.resume_run.empty() && options.resumed.at("status") != "running";
  if (store && continues)
    store->open_run(options.resume_run, fs::path(options.recipe_file).parent_path(), recipe.checkpoint.monitor);
  const StartPoint start = choose_start(options, home, continues ? store.get() : nullptr);
  refuse_bad_inputs(recipe, start);
  Plan plan = plan_run(elastic ? elastic->recipe() : recipe, place);
  const std::string worker = worker_binary();
  const bool resumes = !options.resume_run.empty();
  auto notes = check_start(options, start, plan);
  look_at_disk(plan, home, resumes ? fs::path(options.recipe_file).parent_path() : fs::path());
  const double before_data = steady_seconds();
  const auto tokenizing = prepare_text(plan.recipe.data, cache_dir);
  // Opening the data checks that they are long enough.
  const auto amount = data_summary(plan.recipe.data, plan.seq_len, plan.vocab_size, cache_dir, /*tokenized=*/true);
  const double data_seconds = steady_seconds() - before_data;
  for (auto& note : check_data(options, start, plan, cache_dir)) notes.push_back(std::move(note));

  StopSignals signals;  // from here on, a signal ends the run in order
  RunRecord record(home, recipe, plan, options, start, code, signals, shown, started);
  std::optional<RunFolder> folder;
  CheckpointFollower checkpoints(store, recipe, record);
  Outcome outcome;
  try {
    const fs::path run_dir = record.run_dir();
    folder.emplace(run_dir);
    for (const auto& file : lua::changed_scripts(recipe, run_dir))
      log::info("note: {} has changed since this run was last started; the run uses the new version", file);
    if (resumes) note_edited_recipe(options);
    if (resumes && start.step > 0) note_rate_change(run_dir, plan.recipe, start.step);
    if (!record.taken_up()) folder->write(recipe, plan);  // begin() refuses a run that another process has resumed
    if (!record.taken_up()) folder->keep_tokenizer(plan.recipe.data, cache_dir);
    if (resumes) log::info("{}", where_it_starts(options, start));
    record.on_data(amount, data_seconds);
    const int64_t attempt = record.begin(start);
    checkpoints.begin();
    for (const auto& note : notes) record.on_event({{"event", "note"}, {"message", note}});
    outcome = supervise_attempts({.recipe = recipe,
                                  .place = place,
                                  .start = start,
                                  .record = record,
                                  .folder = *folder,
                                  .checkpoints = checkpoints,
                                  .signals = signals,
                                  .members = members,
                                  .elastic = elastic,
                                  .worker = worker,
                                  .cache_dir = cache_dir,
                                  .accept_changed_data = options.accept_changed_data},
                                 attempt, std::move(plan));
    outcome = checkpoints.finish(std::move(outcome), signals);
  } catch (const std::exception& error) {
    record.fail(failure_of(error));
    log::copy(fmt::format("error: {}", failure_of(error).first_cause));
    if (resumes && folder) drop_unused_settings(*folder, record);
    throw;
  }
  std::exception_ptr failure;  // of the ledger
  try {
    record.finish(outcome);
  } catch (...) {
    failure = std::current_exception();
  }
  if (resumes && outcome.status == "failed") drop_unused_settings(*folder, record);
  if (failure) std::rethrow_exception(failure);
  return outcome;
}

/// Leads the run, and sends the outcome to the other supervisors, also if the run could not start.
ExitCode lead_members(auto& members, const auto& lead) {
  try {
    const Outcome outcome = lead();
    members.end(outcome);
    return outcome.code;
  } catch (const std::exception& error) {
    members.end(failure_of(error));
    throw;
  }
}

/// Runs the leader of several supervisors.
ExitCode lead_several(const LaunchOptions& options, const Recipe& recipe, const Place& place, double started) {
  const auto& placement = place.placement;
  log::info("rendezvous at {}:{}: {} x {}", placement.master_addr, placement.master_port,
            counted(placement.num_nodes, "node"), counted(placement.local_size, "rank"));
  Members members(introduce(recipe, place, options), recipe.devices.rendezvous_timeout);
  return lead_members(members, [&] { return lead_run(options, recipe, place, &members, nullptr, started); });
}

/// Runs the leader of an elastic run.
ExitCode lead_elastic(const LaunchOptions& options, const Recipe& given, const Place& place, double started) {
  const auto& placement = place.placement;
  const Recipe recipe = keep_step_size(given, options);
  log::info("rendezvous at {}:{}: {} to {} x {}", placement.master_addr, placement.master_port,
            recipe.devices.least_nodes(), counted(recipe.devices.most_nodes(), "node"),
            counted(placement.local_size, "rank"));
  ElasticMembers members(introduce(given, place, options));
  return lead_members(members, [&] {
    ElasticNodes nodes(members, recipe, place);
    nodes.gather();
    return lead_run(options, given, nodes.place(), &members, &nodes, started);
  });
}

/// Runs a follower. Under a launcher, which shows the leader's output, it prints nothing but its own errors.
ExitCode follow_run(const LaunchOptions& options, const Recipe& recipe, const Place& place) {
  Introduction self = introduce(recipe, place, options);
  if (place.placement.elastic && options.node.node_rank)
    log::info(
        "note: --node-rank {} does not number this node: node 0 numbers the others in the order in which they join",
        *options.node.node_rank);
  WorkerGroup group;
  group.worker = worker_binary();
  runner::place(group, place.placement);
  group.device_indices = place.device_indices;
  MessageSocket leader = join_leader(self, recipe.devices.rendezvous_timeout);
  const auto& placement = place.placement;
  if (placement.elastic)
    log::info("joined {}:{}; node 0 shows the progress", placement.master_addr, placement.master_port);
  else if (!placement.launched)
    log::info("joined {}:{} as node {} of {}; node 0 shows the progress", placement.master_addr, placement.master_port,
              placement.node_rank, placement.num_nodes);
  Outcome outcome = follow(leader, self, group, [&](const fs::path& run_dir) { refuse_other_code(recipe, run_dir); });
  if (placement.launched) return outcome.code;
  if (outcome.status == "failed")
    log::error("node 0: {}", outcome.first_cause);
  else
    log::info("{}", outcome.status);
  return outcome.code;
}

}  // namespace

std::string worker_binary() {
  const fs::path path = beside_program("runner-worker");
  if (!fs::exists(path)) throw environment_error("{} is missing: build it, or reinstall runner", path.string());
  return path.string();
}

ExitCode launch_run(const LaunchOptions& options) {
  double started = steady_seconds();
  Recipe recipe = load_whole_recipe(options.recipe_file, options.overrides, add_mistakes_in_data);
  keep_micro_batch(recipe, options);
  keep_label_order(recipe, options);
  if (!options.resume_run.empty()) keep_trained_tokenizer(recipe.data, fs::path(options.recipe_file).parent_path());
  refuse_bad_plugins(recipe);
  Place place = find_place(recipe, options);
  if (nothing_left(options, recipe))
    return place.placement.rank == 0 ? tell_nothing_left(options, recipe) : ExitCode::done;
  if (place.placement.rank != 0) return follow_run(options, recipe, place);
  if (auto warning = explicit_indices_warning(place.placement, recipe.devices.devices.indices); !warning.empty())
    log::warning("{}", warning);
  if (place.placement.elastic) return lead_elastic(options, recipe, place, started);
  if (place.several_supervisors()) return lead_several(options, recipe, place, started);
  return lead_run(options, recipe, place, nullptr, nullptr, started).code;
}

}  // namespace runner
