#include "runner/commands/checkpoint_plugin.hpp"

#include <chrono>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/checkpoint_io_file.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/plugins/library.hpp"

namespace runner {

namespace {

const std::string io_key = "plugins.checkpoint_io";

/// Throws Error(usage) or RecipeError.
lua::CheckpointIOFile open_plugin(const Recipe& recipe) {
  const std::string& path = *recipe.plugins.checkpoint_io;
  check_library_file(path, io_key);
  if (fs::path(path).extension() == ".lua") {
    std::vector<Diagnostic> diagnostics;
    auto file = lua::load_checkpoint_io_file(recipe, diagnostics);
    if (!diagnostics.empty()) throw RecipeError(diagnostics);
    return file;
  }
  const auto& library = open_parts(path, io_key);
  if (!library.checkpoint_io)
    throw usage_error("{}: {} has no checkpoint_io; RUNNER_PARTS(.checkpoint_io = ...) defines it", io_key, path);
  const auto options = plugin_options(recipe.plugins.options, "plugins.options");
  lua::CheckpointIOFile opened;
  try {
    opened.io = library.checkpoint_io(options);
  } catch (const std::exception& error) {
    throw usage_error("{}: checkpoint_io(options) of {} failed: {}", io_key, path, error.what());
  }
  if (!opened.io) throw usage_error("{}: checkpoint_io(options) of {} returned nothing", io_key, path);
  opened.options = options.asked();
  return opened;
}

Retention retention_rule(const Recipe& recipe, const Attempts& attempts) {
  const auto& settings = recipe.checkpoint;
  return {.keep_last = settings.keep_last,
          .save_top_k = settings.save_top_k.value_or(0),
          .keep_every = settings.keep_every_n_steps.value_or(0),
          .monitor = settings.monitor,
          .higher_is_better = higher_is_better(settings.monitor),
          .attempts = attempts};
}

}  // namespace

std::set<std::string> check_checkpoint_io(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (!recipe.plugins.checkpoint_io) return {};
  try {
    return open_plugin(recipe).options;
  } catch (const RecipeError& error) {
    diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
  } catch (const Error& error) {
    diagnostics.push_back({recipe.origin(io_key), "plugin", error.what()});
    diagnostics.back().section = "plugins";
  }
  return {};
}

std::shared_ptr<CheckpointStore> open_checkpoint_store(const Recipe& recipe) {
  if (!recipe.plugins.checkpoint_io || recipe.run.fast_dev_run > 0) return nullptr;
  return std::make_shared<CheckpointStore>(open_plugin(recipe).io,
                                           fs::path(*recipe.plugins.checkpoint_io).filename().string());
}

CheckpointFollower::CheckpointFollower(std::shared_ptr<CheckpointStore> store, const Recipe& recipe, RunRecord& record)
    : store_(std::move(store)), recipe_(recipe), record_(record) {}

void CheckpointFollower::store_missing() {
  try {
    attempts_ = record_.attempts();
  } catch (const std::exception&) {
    // A ledger that cannot be read now must not stop the training. The attempts read before are those of this run, too.
  }
  background_->begin(retention_rule(recipe_, attempts_));
}

void CheckpointFollower::begin() {
  if (!store_) return;
  store_->open_run(record_.run(), record_.run_dir(), recipe_.checkpoint.monitor);
  background_ = std::make_unique<BackgroundStore>(store_, recipe_.checkpoint.on_error == "stop");
  store_missing();
}

void CheckpointFollower::on_event(const nlohmann::json& event) {
  const auto brief = record_.brief_reads();
  if (background_ && event.value("event", "") == "checkpoint") store_missing();
}

void CheckpointFollower::pass_on_notes() {
  for (const auto& note : background_->take_notes()) record_.on_event({{"event", "note"}, {"message", note}});
}

void CheckpointFollower::on_tick() {
  if (!background_) return;
  pass_on_notes();
  background_->check();
}

void CheckpointFollower::on_settle(std::function<void()> answer) {
  if (!background_ || recipe_.checkpoint.async) return answer();
  background_->when_idle(std::move(answer));
}

/// Returns whether nothing is left to store. Says what it waits for after two seconds, and then for each checkpoint and twice a minute.
bool CheckpointFollower::wait_until_stored(StopSignals& signals, bool stopped) {
  constexpr std::chrono::milliseconds look_every{20};
  constexpr double silent_for = 2, repeat_after = 30;
  const double begun = steady_seconds(), patience = static_cast<double>(recipe_.train.grace_time.count());
  double told_at = begun;
  std::string told;
  while (const auto name = background_->busy()) {
    record_.on_tick();
    const double now = steady_seconds();
    const auto received = signals.take();
    const bool asked = std::ranges::any_of(received, [](int signal) { return signal != SIGTSTP && signal != SIGCHLD; });
    if (asked || (stopped && now - begun > patience)) return false;
    if (now - begun > silent_for && (told != *name || now - told_at > repeat_after)) {
      const auto text =
          fmt::format("storing {} with {}: waiting for {}{}", name->empty() ? "checkpoints" : "checkpoint " + *name,
                      store_->file(), format_duration(now - begun), told.empty() ? " (Ctrl-C ends the wait)" : "");
      record_.on_event({{"event", "note"}, {"message", text}});
      told = *name;
      told_at = now;
    }
    std::this_thread::sleep_for(look_every);
  }
  return true;
}

Outcome CheckpointFollower::finish(Outcome outcome, StopSignals& signals) {
  if (!background_ || record_.taken_up()) return outcome;
  const bool stopped = outcome.status == "preempted" || outcome.status == "interrupted";
  store_missing();
  const bool ended = wait_until_stored(signals, stopped);
  if (!ended) background_->give_up();
  pass_on_notes();
  const std::string failure = ended ? background_->missing() : "";
  std::string note;
  if (!ended)
    note = outcome.status == "finished" ? "not all checkpoints are stored; they are complete in the run's folder"
                                        : "not all checkpoints are stored; the next start of this run stores the rest";
  else if (!failure.empty() && outcome.status != "finished")
    note = failure + "; the next start of this run tries it again";
  if (!note.empty()) record_.on_event({{"event", "note"}, {"message", note}});
  if (failure.empty() || outcome.status != "finished") return outcome;
  outcome.status = "failed";
  outcome.code = ExitCode::environment;
  outcome.kind = "environment";
  outcome.first_cause = failure + "; it was the last checkpoint of this run, which is complete in the run's folder";
  return outcome;
}

}  // namespace runner
