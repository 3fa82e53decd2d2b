// Messages of the data's reader name what the user of an inference command has given.
#include "runner/inference/request.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("messages about the user's files do not name keys of a recipe", "[rank15]") {
  const InferenceRequest predict{.verb = "predict", .load = {.folder = "model"}, .files = {"a.jsonl"}};
  const InferenceRequest evaluate{.verb = "evaluate", .load = {.folder = "model"}, .data = "a.jsonl"};
  const InferenceRequest of_run{.verb = "evaluate", .load = {.run_dir = "runs/1"}};
  const auto missing = "data.target: a.jsonl has no column `label`; its records have text";
  CHECK(with_options_for_keys(evaluate, missing) == "--data: a.jsonl has no column `label`; its records have text");
  CHECK(with_options_for_keys(of_run, missing) == missing);  // of the run's own data
  CHECK(with_options_for_keys(predict, "data.validation: a.jsonl is empty") == "a.jsonl is empty");
  CHECK(with_options_for_keys(evaluate, "data.validation: a.jsonl is empty") == "--data: a.jsonl is empty");
  CHECK(with_options_for_keys(evaluate,
                              "data.validation: none does not exist; instead of it, data.validation_fraction = 0.2 "
                              "takes a part of the images of data.train") == "--data: none does not exist");
  CHECK(with_options_for_keys(
            evaluate, "a.jsonl:2: the target `label` is missing; data.missing = \"drop\" leaves such rows out") ==
        "a.jsonl:2: the target `label` is missing");
  CHECK(with_options_for_keys(
            predict, "a.csv:2: `x` is missing, and the training had no missing cells: data.missing is \"drop\"") ==
        "a.csv:2: `x` is missing, and the training had no missing cells");
  CHECK(with_options_for_keys(predict, "a.csv:2: `x` is missing, and data.missing is \"error\"") ==
        "a.csv:2: `x` is missing");
}
