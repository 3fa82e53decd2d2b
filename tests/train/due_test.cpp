// What is due at the end of a step: one row for each case.
#include "runner/train/due.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <vector>

using namespace runner;

namespace {

struct DueCase {
  const char* what;
  std::function<void(Recipe&)> change = {};
  StepEnd end;
  Due due;
  bool has_validation = true;
};

Due due_of(const DueCase& row) {
  Recipe recipe;
  recipe.train.val_check_interval = 10;
  recipe.checkpoint.every_n_steps = 100;
  recipe.checkpoint.save_top_k = 0;
  if (row.change) row.change(recipe);
  return due(recipe, row.has_validation, row.end);
}

void at_epochs(Recipe& recipe) { recipe.train.val_check_interval.reset(); }
void keeps_best(Recipe& recipe) { recipe.checkpoint.save_top_k = 1; }
void no_save_at_end(Recipe& recipe) { recipe.checkpoint.save_at_end = false; }

}  // namespace

TEST_CASE("validation, checkpoint and end of the training are due as the recipe and requests say") {
  using enum Course;
  using enum Validation;
  const std::vector<DueCase> rows = {
      {.what = "nothing", .end = {.step = 7}, .due = {}},
      {.what = "a validation", .end = {.step = 10}, .due = {.validate = true}},
      {.what = "a validation, but there are no data", .end = {.step = 10}, .due = {}, .has_validation = false},
      {.what = "a validation that is done", .end = {.step = 10, .validation = done}, .due = {}},
      {.what = "the end of an epoch, with an interval of steps", .end = {.step = 7, .epoch_end = true}, .due = {}},
      {.what = "the end of an epoch",
       .change = at_epochs,
       .end = {.step = 7, .epoch_end = true},
       .due = {.validate = true}},
      {.what = "inside an epoch", .change = at_epochs, .end = {.step = 10}, .due = {}},
      {.what = "what a stopped run left", .end = {.step = 7, .unfinished = true}, .due = {.validate = true}},
      {.what = "a checkpoint", .end = {.step = 100, .validation = done}, .due = {.save = true}},
      {.what = "a requested checkpoint", .end = {.step = 7, .checkpoint_requested = true}, .due = {.save = true}},
      {.what = "a validation, with save_top_k",
       .change = keeps_best,
       .end = {.step = 10, .validation = done},
       .due = {.save = true}},
      {.what = "no validation, with save_top_k", .change = keeps_best, .end = {.step = 7}, .due = {}},
      {.what = "the last step",
       .end = {.step = 7, .course = complete},
       .due = {.validate = true, .save = true, .course = complete}},
      {.what = "the last step, validated",
       .end = {.step = 7, .course = complete, .validation = done},
       .due = {.save = true, .course = complete}},
      {.what = "the last step without a last checkpoint",
       .change = no_save_at_end,
       .end = {.step = 7, .course = complete, .validation = done},
       .due = {.course = complete}},
      {.what = "max_time",
       .end = {.step = 7, .course = max_time},
       .due = {.validate = true, .save = true, .course = max_time}},
      {.what = "a stop by a hook",
       .end = {.step = 7, .course = hook},
       .due = {.validate = true, .save = true, .course = hook}},
      {.what = "a stop request", .end = {.step = 7, .asked_to_stop = true}, .due = {.save = true, .course = asked}},
      {.what = "a stop request saves a checkpoint even if the recipe saves none",
       .change = no_save_at_end,
       .end = {.step = 7, .asked_to_stop = true},
       .due = {.save = true, .course = asked}},
      {.what = "a stop request leaves a validation",
       .end = {.step = 10, .asked_to_stop = true, .validation = left},
       .due = {.save = true, .course = asked}},
      {.what = "a stop request in the last step leaves its validation",
       .end = {.step = 7, .course = complete, .asked_to_stop = true, .validation = left},
       .due = {.save = true, .course = asked}},
      {.what = "a stop request in the last step leaves nothing",
       .end = {.step = 7, .course = complete, .asked_to_stop = true, .validation = done},
       .due = {.save = true, .course = complete}},
      {.what = "a stop request in the last step of a run without validation",
       .end = {.step = 7, .course = complete, .asked_to_stop = true},
       .due = {.save = true, .course = complete},
       .has_validation = false},
      {.what = "a stop request after a hook stopped the run",
       .end = {.step = 7, .course = hook, .asked_to_stop = true, .validation = left},
       .due = {.save = true, .course = asked}},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    const Due found = due_of(row);
    CHECK(found.validate == row.due.validate);
    CHECK(found.save == row.due.save);
    CHECK(static_cast<int>(found.course) == static_cast<int>(row.due.course));
  }
}
