// The course of a run in the state of its checkpoint: where it was, how the training was to end, and what had
// been decided. Checkpoints of earlier versions lack some of it.
#pragma once
#include <optional>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/train/planned_steps.hpp"

namespace runner {

TrainingStart start_of(const TrainerState& state);

/// The request of a hook to stop the run, with everything in the recipe that decides when the training ends.
nlohmann::json stop_to_json(const std::string& reason, const Recipe& recipe);
/// The reason of a stop in the checkpoint; empty if there is none, or if the recipe now ends the training in another
/// way: with another limit, without the hook, or with another version of it.
std::string standing_stop(const TrainerState& state, const Recipe& recipe);

/// The epochs up to a position, with the part of the last one. Null: the size of the epoch is not known yet.
nlohmann::json epochs_trained(const DataPosition& position, const Dataset& data);

/// The part of the checkpoint's step that was left when a stop request ended the run: its validation, and the end of its epoch.
struct UnfinishedStep {
  int64_t epoch = 0;  ///< in which the step was
  bool epoch_end = false;
};
nlohmann::json to_json(const UnfinishedStep& step);
std::optional<UnfinishedStep> unfinished_step(const TrainerState& state);

/// The learning rate of step `step` and of the next one, and the last step; null for a schedule without an end.
nlohmann::json rates_to_json(const Recipe& recipe, int64_t step, int64_t last_step);
/// A note if the next step has another learning rate than the checkpoint's run had planned, because max_epochs now ends
/// at another step or because the schedule has changed; otherwise empty.
std::string rate_note(const TrainerState& state, const Recipe& recipe, int64_t step, int64_t last_step);

}  // namespace runner
