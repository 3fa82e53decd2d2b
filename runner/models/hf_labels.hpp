// The labels of a model in config.json: num_labels, id2label, label2id and problem_type.
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/contract/task_spec.hpp"

namespace runner {

/// Sets model.num_labels and model.labels if the architecture of `config` is ...ForSequenceClassification. Labels are in the order of
/// their ids.
void read_labels(const nlohmann::json& config, Recipe::Model& model);

/// {"id2label": {"0": label ...}, "label2id": {label: 0 ...}}. Labels without a name get Hugging Face's: LABEL_0, LABEL_1 ...
nlohmann::json label_tables(int64_t count, const std::vector<std::string>& labels = {});

/// Adds label_tables(), num_labels and problem_type.
void write_labels(const Recipe::Model& model, const TaskSpec& task, nlohmann::json& config);

}  // namespace runner
