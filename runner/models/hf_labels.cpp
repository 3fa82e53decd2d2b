#include "runner/models/hf_labels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

using nlohmann::json;

void read_labels(const json& config, Recipe::Model& model) {
  const auto architectures = config.value("architectures", json::array());
  const bool classifies = architectures.is_array() && !architectures.empty() && architectures[0].is_string() &&
                          architectures[0].get<std::string>().ends_with("ForSequenceClassification");
  if (!classifies) return;
  const auto names = config.value("id2label", json());
  if (!names.is_object()) {
    model.num_labels = config.value("num_labels", int64_t{2});
    return;
  }
  model.num_labels = std::ssize(names);
  for (size_t id = 0; id < names.size(); ++id) {
    const auto name = names.find(std::to_string(id));
    if (name == names.end() || !name->is_string())
      throw usage_error("config.json: id2label has no label of the id {}; it must have 0 to {}", id, names.size() - 1);
    if (std::ranges::find(model.labels, name->get<std::string>()) != model.labels.end())
      throw usage_error("config.json: id2label has the label {} twice", name->dump());
    model.labels.push_back(*name);
  }
}

json label_tables(int64_t count, const std::vector<std::string>& labels) {
  json names = json::object(), ids = json::object();
  for (int64_t id = 0; id < count; ++id) {
    const auto name = labels.empty() ? fmt::format("LABEL_{}", id) : labels.at(static_cast<size_t>(id));
    names[std::to_string(id)] = name;
    ids[name] = id;
  }
  return {{"id2label", names}, {"label2id", ids}};
}

void write_labels(const Recipe::Model& model, const TaskSpec& task, json& config) {
  config.update(label_tables(task.outputs, model.labels));
  config["num_labels"] = task.outputs;
  config["problem_type"] = task.classifies()  ? "single_label_classification"
                           : task.regresses() ? "regression"
                                              : "multi_label_classification";
}

}  // namespace runner
