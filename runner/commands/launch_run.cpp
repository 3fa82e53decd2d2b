// Runs a recipe: plan, ledger row, run folder, supervised workers, progress, result.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/hang_limit.hpp"
#include "runner/base/log.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/disk_space.hpp"
#include "runner/commands/place.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/recipe_files.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_folder.hpp"
#include "runner/commands/run_record.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/config/config.hpp"
#include "runner/config/schedule.hpp"
#include "runner/data/background_tokenizing.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_check.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/follower.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/lua/hook_places.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner {

namespace {

/// The settings that must be equal on all supervisors of a run.
Introduction introduce(const Recipe& recipe, const Place& place, const LaunchOptions& options) {
  auto alike = recipe_to_json(recipe);
  alike["runner"] = {{"build", build_id()},
                     {"resumes", options.resume_run},
                     {"from_checkpoint", options.resume_checkpoint},
                     {"from_beginning", options.from_beginning}};
  alike["devices here"] = {{"accelerator", place.topology.cuda ? "cuda" : "cpu"}, {"bf16", place.topology.bf16}};
  return {place.placement, read_facts().hostname, alike};
}

/// Keeps the number of sequences per step of a resumed run if it depends on an automatically chosen micro-batch. A run
/// that was killed before its plan was written has made no step.
void keep_micro_batch(Recipe& recipe, const LaunchOptions& options) {
  if (options.resume_run.empty() || recipe.train.micro_batch_size != Recipe::automatic ||
      recipe.train.global_batch_size)
    return;
  const fs::path file = fs::path(options.recipe_file).parent_path() / "plan.json";
  if (!fs::exists(file)) return;
  auto plan = nlohmann::json::parse(read_file(file));
  recipe.train.micro_batch_size = plan.at("micro_batch_size").get<int64_t>();
  recipe.origins["train.micro_batch_size"] =
      decided("the size that the run began with, so that a step keeps its number of sequences");
}

/// Labels of a resumed run keep their order, also if model.init_from, which may have decided it, is gone.
void keep_label_order(Recipe& recipe, const LaunchOptions& options) {
  const fs::path file = fs::path(options.recipe_file).parent_path() / "resolved.toml";
  if (options.resume_run.empty() || !fs::exists(file)) return;
  recipe.model.label_order = load_recipe(file.string()).model.labels;
}

/// Why CPU ranks of several supervisors cannot communicate through shared memory; empty if no note is needed.
std::string transport_note(const Place& place) {
  const auto& placement = place.placement;
  if (place.topology.cuda || placement.local_size == 1) return "";
  if (placement.num_nodes > 1) return "CPU ranks on several nodes communicate over Gloo, also within a node";
  return fmt::format(
      "{} started one supervisor for each rank of this node, so the ranks communicate over Gloo; a single `runner run` "
      "that starts all ranks lets them use shared memory",
      placement.cluster);
}

WorkerGroup make_group(const Plan& plan, const Place& place, const std::string& worker, const fs::path& run_dir,
                       const std::string& cache_dir) {
  const auto& recipe = plan.recipe;
  WorkerGroup group;
  group.worker = worker;
  group.arguments = {"--run-dir", run_dir.string(), "--cache-dir", cache_dir};
  runner::place(group, place.placement);
  if (plan.entry->ranks_are_threads) group.ranks_of_worker = group.local_world_size;
  group.master_port = 0;  // the supervisor chooses a free port for all ranks
  group.cuda_indices = place.cuda_indices;
  auto threads = std::to_string(recipe.devices.threads_per_rank.value_or(1));
  group.environment = {{"OMP_NUM_THREADS", threads}, {"MKL_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "passive"}};
  group.log_dir = (run_dir / "logs").string();
  bool shared_memory =
      !place.topology.cuda && !place.several_supervisors() && group.world_size > 1 && shares_memory(recipe);
  if (shared_memory) group.shm_bytes = static_cast<int64_t>(shm_segment_bytes(group.local_size));
  group.grace_time = recipe.train.grace_time;
  group.max_restarts = recipe.train.max_restarts;
  group.stopped_limit = hang_limit(recipe.train.timeout);
  return group;
}

/// Sets the worker arguments of an attempt: --attempt, and --resume if it starts from a checkpoint.
void set_attempt(WorkerGroup& group, int64_t attempt, const StartPoint& start) {
  auto& arguments = group.arguments;
  for (const char* option : {"--attempt", "--resume"})
    if (auto found = std::find(arguments.begin(), arguments.end(), option); found != arguments.end())
      arguments.erase(found, found + 2);
  arguments.insert(arguments.end(), {"--attempt", std::to_string(attempt)});
  if (!start.checkpoint.empty()) arguments.insert(arguments.end(), {"--resume", start.checkpoint});
}

/// Resolves every `auto` and prints the plan.
Plan plan_run(const Recipe& recipe, const Place& place) {
  Plan plan = plan_on(recipe, place.topology, place.several_supervisors());
  if (plan.entry->ranks_are_threads && place.placement.launched)
    throw usage_error(
        "strategy `{}` has one process for all devices of a node, and {} starts one for each device: set "
        "devices.cluster = \"local\" and start `runner run` once on each node, or use ddp",
        plan.entry->name, place.placement.cluster);
  if (auto text = place.several_supervisors() ? transport_note(place) : ""; !text.empty()) plan.notes.push_back(text);
  for (const auto& note : plan.notes) log::info("note: {}", note);
  log::info("{}", describe(plan));
  if (plan.rule != "named") log::info("strategy {}: {}", plan.entry->name, plan.reason);
  return plan;
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

/// Runs the workers and records their events. A restart continues from the newest checkpoint of this command's attempts
/// (numbers from `attempt` on), otherwise from `start`.
Outcome supervise_recorded(const WorkerGroup& group, RunRecord& record, StopSignals& signals, Members* members,
                           const StartPoint& start, int64_t attempt) {
  SupervisorHooks hooks;
  hooks.signals = &signals;
  hooks.on_event = [&](const nlohmann::json& event) { record.on_event(event); };
  hooks.on_settle = [&](std::function<void()> answer) { record.on_settle(std::move(answer)); };
  hooks.on_tick = [&] { record.on_tick(); };
  hooks.on_restart = [&](WorkerGroup& again, int restart, const std::string& why) {
    StartPoint newest = newest_start(record.run_dir(), record.attempts());
    const StartPoint& from = newest.attempt >= attempt ? newest : start;
    set_attempt(again, record.on_restart(restart, why, from), from);
  };
  return supervise(group, hooks, members);
}

/// The next smaller micro-batch to try if micro_batch_size is "auto" and the first step ran out of memory. Empty
/// otherwise, or if there is no smaller size.
std::optional<int64_t> smaller_micro_batch(const Recipe& recipe, const Plan& plan, const Outcome& outcome,
                                           const RunRecord& record) {
  if (outcome.kind != "oom" || record.made_step() || recipe.train.micro_batch_size != Recipe::automatic) return {};
  for (const auto& choice : batch_choices(recipe, {.data = plan.job.data_ranks(), .pipeline = plan.job.pipeline.ranks}))
    if (choice.micro_batch_size < plan.job.micro_batch_size) return choice.micro_batch_size;
  return {};
}

/// Runs the workers, again with smaller micro-batches as long as smaller_micro_batch() has one. `attempt`: the number of the first attempt,
/// which has begun. `plan` becomes that of the last one.
Outcome supervise_attempts(WorkerGroup& group, int64_t attempt, const Recipe& recipe, const Place& place, Plan& plan,
                           RunRecord& record, const RunFolder& folder, StopSignals& signals, Members* members,
                           const StartPoint& start) {
  while (true) {
    set_attempt(group, attempt, start);
    const auto outcome = supervise_recorded(group, record, signals, members, start, attempt);
    const auto size = smaller_micro_batch(recipe, plan, outcome, record);
    if (!size) return outcome;
    log::warning("the first step ran out of memory with micro-batches of {}; trying the next smaller size, {}",
                 plan.job.micro_batch_size, *size);
    Recipe smaller = recipe;
    smaller.train.micro_batch_size = *size;
    smaller.origins["train.micro_batch_size"] = decided("larger ones ran out of memory in their first step");
    plan = plan_run(smaller, place);
    folder.write(recipe, plan);
    record.replan(recipe, plan, outcome);
    attempt = record.begin(start);
  }
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
  auto* known = dynamic_cast<const Error*>(&error);
  return {known ? known->code() : ExitCode::run_failed, "failed", error.what()};
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
                 double started) {
  check_fast_dev_run(options, recipe);
  CodeReader code(fs::current_path());
  const auto scratch = scratch_of(recipe, members != nullptr);
  const std::string home = (scratch ? scratch->path() : fs::absolute(ledger_home())).string();
  const std::string cache_dir = data_cache();
  const StartPoint start = choose_start(options, home);
  refuse_bad_inputs(recipe, start);
  Plan plan = plan_run(recipe, place);
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
  RunRecord record(home, recipe, plan, options, start, code, signals, started);
  std::optional<RunFolder> folder;
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
    WorkerGroup group = make_group(plan, place, worker, run_dir, cache_dir);
    if (options.accept_changed_data) group.arguments.push_back("--accept-changed-data");
    const int64_t attempt = record.begin(start);
    for (const auto& note : notes) record.on_event({{"event", "note"}, {"message", note}});
    outcome = supervise_attempts(group, attempt, recipe, place, plan, record, *folder, signals, members, start);
  } catch (const std::exception& error) {
    record.fail(failure_of(error));
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

/// Runs the leader of several supervisors. Sends the outcome to the others, also if the run could not start.
ExitCode lead_several(const LaunchOptions& options, const Recipe& recipe, const Place& place, double started) {
  const auto& placement = place.placement;
  log::info("rendezvous at {}:{}: {} x {}", placement.master_addr, placement.master_port,
            counted(placement.num_nodes, "node"), counted(placement.local_size, "rank"));
  Members members(introduce(recipe, place, options), recipe.devices.rendezvous_timeout);
  try {
    Outcome outcome = lead_run(options, recipe, place, &members, started);
    members.end(outcome);
    return outcome.code;
  } catch (const std::exception& error) {
    members.end(failure_of(error));
    throw;
  }
}

/// Runs a follower. Under a launcher, which shows the leader's output, it prints nothing but its own errors.
ExitCode follow_run(const LaunchOptions& options, const Recipe& recipe, const Place& place) {
  Introduction self = introduce(recipe, place, options);
  WorkerGroup group;
  group.worker = worker_binary();
  runner::place(group, place.placement);
  group.cuda_indices = place.cuda_indices;
  MessageSocket leader = join_leader(self, recipe.devices.rendezvous_timeout);
  const auto& placement = place.placement;
  if (!placement.launched)
    log::info("joined {}:{} as node {} of {}; node 0 shows the progress", placement.master_addr, placement.master_port,
              placement.node_rank, placement.num_nodes);
  Outcome outcome = follow(leader, self, group);
  if (placement.launched) return outcome.code;
  if (outcome.status == "failed")
    log::error("node 0: {}", outcome.first_cause);
  else
    log::info("{}", outcome.status);
  return outcome.code;
}

}  // namespace

std::string worker_binary() {
  fs::path path = fs::read_symlink("/proc/self/exe").parent_path() / "runner-worker";
  if (!fs::exists(path)) throw environment_error("{} is missing: build it, or reinstall runner", path.string());
  return path.string();
}

ExitCode launch_run(const LaunchOptions& options) {
  double started = steady_seconds();
  Recipe recipe = load_whole_recipe(options.recipe_file, options.overrides);
  keep_micro_batch(recipe, options);
  keep_label_order(recipe, options);
  Place place = find_place(recipe, options);
  if (nothing_left(options, recipe))
    return place.placement.rank == 0 ? tell_nothing_left(options, recipe) : ExitCode::done;
  if (place.placement.rank != 0) return follow_run(options, recipe, place);
  if (auto warning = explicit_indices_warning(place.placement, recipe.devices.devices.indices); !warning.empty())
    log::warning("{}", warning);
  if (place.several_supervisors()) return lead_several(options, recipe, place, started);
  return lead_run(options, recipe, place, nullptr, started).code;
}

}  // namespace runner
