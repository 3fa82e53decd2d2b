#include "runner/commands/start_point.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/fit.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/data/table_data.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

namespace {

StartPoint start_at(const fs::path& path, const Checkpoint& checkpoint) {
  const auto completed = checkpoint.state().find("completed");
  return {.checkpoint = path.string(),
          .step = checkpoint.step(),
          .completed = completed != checkpoint.state().end() && *completed == true,
          .attempt = checkpoint.attempt()};
}

/// The start point of the folder given by --checkpoint, which may be relative to the run's folder.
StartPoint asked_start(const std::string& named, const fs::path& run_dir = {}) {
  const fs::path path = named_checkpoint(named, run_dir);
  return start_at(path, Checkpoint(path));
}

/// Throws Error(usage) if `start` is a checkpoint of the run that was given up: the record has no points before it.
void check_course(const StartPoint& start, const std::string& run, const fs::path& run_dir, const Attempts& attempts) {
  const Checkpoint checkpoint(start.checkpoint, /*verify=*/false);
  if (!written_by(checkpoint, run_dir) || !given_up(checkpoint, attempts)) return;
  const auto later = std::find_if(attempts.upper_bound(checkpoint.attempt()), attempts.end(),
                                  [&](const auto& attempt) { return attempt.second < checkpoint.step(); });
  throw usage_error(
      "{}: run {} went back to step {} after it had written this checkpoint, and the record of the later steps was "
      "removed. `runner run RECIPE --checkpoint FOLDER` continues from it as a new run",
      start.checkpoint, run, later->second);
}

/// The checkpoint that the store has in addition, if it is of a later step than `here`. If the store cannot be asked, the run continues
/// from `here`, if there is one.
std::optional<fs::path> newer_in_store(CheckpointStore& store, const StartPoint& here, const Attempts& attempts,
                                       const std::function<void(const std::string&)>& skip) {
  try {
    return store.bring_newer(here.checkpoint.empty() ? -1 : here.step, attempts, skip);
  } catch (const Error& error) {
    if (here.checkpoint.empty()) throw;
    log::warning("{}; continuing from {}, although a later checkpoint may be stored", error.what(), here.checkpoint);
    return std::nullopt;
  }
}

/// newest_start(). Sets `damaged` if a checkpoint could not be used because it is damaged.
StartPoint find_newest(const fs::path& run_dir, const Attempts& attempts, CheckpointStore* store, bool& damaged) {
  auto skip = [&](const std::string& text) {
    damaged = true;
    log::warning("{}", text);
  };
  auto found = newest_good_checkpoint(run_dir / "checkpoints", attempts, skip);
  const auto start = [](const fs::path& path) { return start_at(path, Checkpoint(path, /*verify=*/false)); };
  const StartPoint here = found ? start(*found) : StartPoint{};
  const auto newer = store ? newer_in_store(*store, here, attempts, skip) : std::nullopt;
  return newer ? start(*newer) : here;
}

/// Throws Error(usage) if training ends before or at the step from which it continues. A resumed run may be at its end:
/// it may have been stopped during its last validation.
void check_last_step(const LaunchOptions& options, const Recipe& recipe, const StartPoint& start) {
  const bool resumes = !options.resume_run.empty();
  if (recipe.run.fast_dev_run > 0)
    throw usage_error(
        "run.fast_dev_run tries the first steps of a recipe, so it takes no --checkpoint: remove one of them");
  const auto last = recipe.train.max_steps;
  if (!last || *last > start.step || (resumes && *last == start.step)) return;
  if (resumes)
    throw usage_error(
        "train.max_steps = {}: the run continues from step {} ({}), which is later. Give a larger number, or name an "
        "earlier checkpoint with --checkpoint",
        *last, start.step, start.checkpoint);
  throw usage_error(
      "train.max_steps = {}: the checkpoint {} is of step {}, so there is no step left to train. train.max_steps "
      "counts the checkpoint's steps too: give a larger number, or name an earlier checkpoint",
      *last, start.checkpoint, start.step);
}

/// Throws Error(usage) if train.max_epochs ends before the position in the data from which the run continues, or, for a
/// new run, at it.
void check_last_epoch(const LaunchOptions& options, const Recipe& recipe, const StartPoint& start) {
  const auto last = recipe.train.max_epochs;
  if (!last) return;
  const auto data = Checkpoint(start.checkpoint, /*verify=*/false).state().at("data");
  const int64_t epochs = data.at("epoch"), samples = data.at("sample");
  const bool at_its_end = epochs == *last && samples == 0;
  if (at_its_end ? !options.resume_run.empty() : epochs < *last) return;
  throw usage_error(
      "train.max_epochs = {}: the run continues from step {} ({}), which is after {} and {}. Give a larger "
      "number, or name an earlier checkpoint with --checkpoint",
      *last, start.step, start.checkpoint, counted(epochs, "epoch"), counted(samples, "sample"));
}

/// The checkpoint of another run from which the run's last attempt started; otherwise empty. Runs of earlier versions
/// have no such entry.
std::string foreign_start(const nlohmann::json& run) {
  const auto start = run.find("start");
  return start != run.end() && start->is_string() ? start->get<std::string>() : "";
}

/// The start point of an attempt that wrote no checkpoint and had started from a checkpoint of another run.
StartPoint start_elsewhere(const LaunchOptions& options, const std::string& checkpoint) {
  try {
    return asked_start(checkpoint);
  } catch (const Error& error) {
    throw environment_error(
        "run {} started from {} and has no checkpoint since then. That checkpoint cannot be used: {}. Continue from "
        "another one with --checkpoint FOLDER, or train again from the first step with --from-beginning",
        options.resume_run, checkpoint, error.what());
  }
}

/// choose_start() of a resume without --checkpoint and --from-beginning.
StartPoint continued_start(const LaunchOptions& options, const fs::path& run_dir, const Attempts& attempts,
                           CheckpointStore* store) {
  bool damaged = false;
  StartPoint start = find_newest(run_dir, attempts, store, damaged);
  const std::string elsewhere = foreign_start(options.resumed);
  const bool wrote_none = attempts.empty() || start.attempt < attempts.rbegin()->first;
  if (wrote_none && !elsewhere.empty()) return start_elsewhere(options, elsewhere);
  const bool had_some = damaged || !options.resumed.at("checkpoints").empty();
  if (start.checkpoint.empty() && had_some)
    throw environment_error(
        "run {} has no good checkpoint left in {}{}: restore one, continue from another one with --checkpoint FOLDER, "
        "or train again from the first step with --from-beginning",
        options.resume_run, (run_dir / "checkpoints").string(),
        store ? ", and none is stored with " + store->file() : "");
  return start;
}

}  // namespace

bool in_run_folder(const fs::path& checkpoint, const fs::path& run_dir) {
  std::error_code error;
  return !checkpoint.empty() && fs::equivalent(checkpoint.parent_path(), run_dir / "checkpoints", error);
}

StartPoint newest_start(const fs::path& run_dir, const Attempts& attempts, CheckpointStore* store) {
  bool damaged = false;
  return find_newest(run_dir, attempts, store, damaged);
}

StartPoint choose_start(const LaunchOptions& options, const std::string& home, CheckpointStore* store) {
  const bool named = !options.resume_checkpoint.empty();
  if (options.resume_run.empty()) return named ? asked_start(options.resume_checkpoint) : StartPoint{};
  const fs::path run_dir = fs::path(options.recipe_file).parent_path();
  const auto attempts = Ledger(home, Ledger::Mode::read).attempts(options.resume_run);
  StartPoint start;
  if (named) {
    start = asked_start(options.resume_checkpoint, run_dir);
    check_course(start, options.resume_run, run_dir, attempts);
  } else if (!options.from_beginning) {
    start = continued_start(options, run_dir, attempts, store);
  }
  if (!attempts.empty()) start.seen = attempts.rbegin()->first;
  return start;
}

std::vector<std::string> check_start(const LaunchOptions& options, const StartPoint& start, const Plan& plan) {
  if (start.checkpoint.empty()) return {};
  auto notes = check_fit(Checkpoint(start.checkpoint, /*verify=*/false), plan.recipe, *plan.model);
  check_last_step(options, plan.recipe, start);
  check_last_epoch(options, plan.recipe, start);
  return notes;
}

namespace {

/// A note for a resumed run that has no checkpoint, if its data differ from those that it began with.
std::vector<std::string> note_other_data(const LaunchOptions& options, const Plan& plan, const std::string& cache_dir) {
  const auto& run = options.resumed;
  const auto before = run.is_object() ? run.value("/inputs/data"_json_pointer, nlohmann::json()) : nlohmann::json();
  if (!before.is_object()) return {};  // a new run, or one that ended before its data were opened
  auto now = short_meaning(data_meaning(plan.recipe, /*global_batch_size=*/0, cache_dir));
  now.update(validation_meaning(plan.recipe.data, cache_dir));
  const auto changes = changed_meaning(before, now);
  if (changes.empty()) return {};
  return {"the data have changed since the run began: " + join(changes, "; ") +
          ". The run starts from the beginning, so all its steps are of the new data"};
}

}  // namespace

std::vector<std::string> check_data(const LaunchOptions& options, const StartPoint& start, const Plan& plan,
                                    const std::string& cache_dir) {
  if (start.checkpoint.empty()) return note_other_data(options, plan, cache_dir);
  const auto state = Checkpoint(start.checkpoint, /*verify=*/false).state();
  // Checkpoints of earlier versions contain only the length of a sample.
  auto before = nlohmann::json::object();
  if (auto model = state.find("model"); model != state.end()) before["data.seq_len"] = model->at("seq_len");
  if (auto data = state.find("data"); data != state.end()) before = data->value("meaning", before);
  const auto learned = state.value("/data/learned"_json_pointer, nlohmann::json());
  auto now = data_meaning(plan.recipe, global_batch_size(plan.recipe, plan.job.data_ranks(), 0), cache_dir);
  std::vector<std::string> notes;
  if (auto changes = changed_meaning(before, now); !changes.empty()) {
    if (!options.accept_changed_data)
      throw usage_error(
          "the training data have changed since {} was written, so its data position now has another meaning: {}. "
          "Restore the data, start a new run, or continue anyway with --accept-changed-data",
          start.checkpoint, join(changes, "; "));
    notes.push_back(accepted_changes + join(changes, "; "));
  }
  if (auto changes = changed_meaning(before, validation_meaning(plan.recipe.data, cache_dir)); !changes.empty())
    notes.push_back("the validation data have changed, so later losses of validation are of other data: " +
                    join(changes, "; "));
  const auto batch = before.find("global_batch_size");
  if (batch != before.end() && *batch != now["global_batch_size"])
    notes.push_back(fmt::format("a step now takes {} sequences instead of {}; the data continue at the same position",
                                now["global_batch_size"].dump(), batch->dump()));
  if (auto note = older_reading_note(plan.recipe.data, learned, plan.recipe.data.train); !note.empty())
    notes.push_back(std::move(note));
  if (auto note = older_targets_note(before, now, plan.recipe.data, cache_dir); !note.empty())
    notes.push_back(std::move(note));
  return notes;
}

}  // namespace runner
