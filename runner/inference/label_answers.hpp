// What the outputs of a model of labels or numbers mean for one row, as JSON. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/contract/task_spec.hpp"

namespace runner {

class LabelAnswers {
 public:
  /// `learned`: Dataset::learned() of the training data, which names classes and target columns. `listed`: how many of the most
  /// probable classes are listed; 0: all; unset: all classes of tables and texts, 5 of images.
  LabelAnswers(const TaskSpec& task, const nlohmann::json& learned, std::optional<int64_t> listed);

  /// Adds to `line`:
  ///   classes          {"label", "probabilities": {class: number}}: all in the order of the classes, or the most probable ones first
  ///   one label        the same with the two values of its column
  ///   several labels   {"labels": {column: value}, "probabilities": {column: that of the second value}}
  ///   numbers          {"value"}, of several {"values": {column: number}}, in their own units
  /// `outputs`: of the model, one for each of TaskSpec::outputs. Throws Error(environment) if one is not finite.
  void add(nlohmann::ordered_json& line, std::span<const float> outputs) const;

 private:
  struct Column {
    std::string name = {};
    std::vector<std::string> values = {"0", "1"};  ///< of a label
    double mean = 0, scale = 1;                    ///< of a number
  };
  void add_class(nlohmann::ordered_json& line, std::span<const float> outputs) const;
  void add_labels(nlohmann::ordered_json& line, std::span<const float> outputs) const;
  void add_numbers(nlohmann::ordered_json& line, std::span<const float> outputs) const;

  TaskSpec task_;
  std::vector<std::string> classes_ = {};
  std::vector<Column> columns_ = {};
  size_t listed_;
};

}  // namespace runner
