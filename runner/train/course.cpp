#include "runner/train/course.hpp"

#include <fmt/format.h>

#include <cmath>

#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/config/config.hpp"
#include "runner/config/schedule.hpp"
#include "runner/lua/hook_set.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// A hash of the limits, the hooks and their texts.
std::string ending(const Recipe& recipe) {
  const json all = recipe_to_json(recipe), train = all.value("train", json::object());
  json deciding = {{"hooks", all.value("hooks", json())}, {"texts", json::array()}};
  for (const char* key : {"max_steps", "max_epochs", "max_time", "early_stopping"})
    deciding[key] = train.value(key, json());
  for (const auto& source : lua::hook_sources(recipe))
    if (fs::is_regular_file(source.file)) deciding["texts"].push_back(xxh3_hex(read_file(source.file)));
  return xxh3_hex(json_text(deciding));
}

}  // namespace

TrainingStart start_of(const TrainerState& state) {
  const auto& data = state.at("data");
  TrainingStart start{.step = state.at("step"), .position = {data.at("epoch"), data.at("sample")}};
  if (const auto steps = state.find("schedule_step"); steps != state.end()) start.schedule_step = steps->get<double>();
  return start;
}

json stop_to_json(const std::string& reason, const Recipe& recipe) {
  return {{"reason", reason}, {"ending", ending(recipe)}};
}

std::string standing_stop(const TrainerState& state, const Recipe& recipe) {
  const auto stop = state.find("stop");
  if (stop == state.end() || stop->at("ending") != ending(recipe)) return "";
  return stop->at("reason");
}

json epochs_trained(const DataPosition& position, const Dataset& data) {
  const auto whole = static_cast<double>(position.epoch);
  if (position.sample == 0) return whole;
  if (position.epoch == 0 && !data.size_known_at_start()) return nullptr;
  return whole + static_cast<double>(position.sample) / static_cast<double>(data.size());
}

json to_json(const UnfinishedStep& step) { return {{"epoch", step.epoch}, {"epoch_end", step.epoch_end}}; }

std::optional<UnfinishedStep> unfinished_step(const TrainerState& state) {
  const auto found = state.find("unfinished");
  if (found == state.end()) return std::nullopt;
  return UnfinishedStep{.epoch = found->at("epoch"), .epoch_end = found->at("epoch_end")};
}

json rates_to_json(const Recipe& recipe, int64_t step, int64_t last_step) {
  if (!needs_end(recipe.lr_scheduler) || step == 0) return nullptr;
  auto rate = [&](int64_t at) { return learning_rate(recipe.lr_scheduler, recipe.optimizer.lr, at, last_step); };
  return {{"last_step", last_step}, {"rate", rate(step)}, {"next_rate", rate(step + 1)}};
}

std::string rate_note(const TrainerState& state, const Recipe& recipe, int64_t step, int64_t last_step) {
  // Without max_epochs, the recipes alone give the rates, and the supervisor compares these.
  if (!recipe.train.max_epochs || step >= last_step) return "";
  const json before = state.value("rates", json()), now = rates_to_json(recipe, step, last_step);
  if (before.is_null() || now.is_null()) return "";
  const double expected = before.at("next_rate"), actual = now.at("next_rate");
  if (std::abs(actual - expected) <= 1e-6 * recipe.optimizer.lr) return "";
  const int64_t planned = before.at("last_step");
  const std::string why =
      planned == last_step
          ? "optimizer.lr or [lr_scheduler] has changed"
          : fmt::format(
                "the training now ends at step {} instead of {}: the {} schedule is computed again from step 1 "
                "to the end",
                last_step, planned, recipe.lr_scheduler.name);
  return fmt::format("the learning rate goes from {:.3g} at step {} to {:.3g} at step {}, because {}",
                     before.at("rate").get<double>(), step, actual, step + 1, why);
}

}  // namespace runner
