#include "runner/inference/label_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/error.hpp"

namespace runner {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

std::vector<double> softmax(std::span<const float> logits) {
  const double most = *std::ranges::max_element(logits);
  std::vector<double> shares;
  double sum = 0;
  for (const double logit : logits) sum += shares.emplace_back(std::exp(logit - most));
  for (auto& share : shares) share /= sum;
  return shares;
}

/// "LABEL_3", as transformers calls a class without a name.
std::string numbered(size_t index) { return fmt::format("LABEL_{}", index); }

}  // namespace

LabelAnswers::LabelAnswers(const TaskSpec& task, const json& learned, std::optional<int64_t> listed) : task_(task) {
  const auto count = static_cast<size_t>(task.outputs);
  const bool of_table = learned.is_object() && learned.contains("targets");
  if (task.classifies()) {
    if (of_table) classes_ = learned.at("targets").at(0).value("classes", std::vector<std::string>());
    for (size_t c = classes_.size(); c < count; ++c) {
      const auto name =
          learned.is_object() ? learned.value("id2label", json::object()).value(std::to_string(c), "") : "";
      classes_.push_back(name.empty() ? numbered(c) : name);
    }
  } else {
    for (size_t c = 0; c < count; ++c) {
      auto& column = columns_.emplace_back(Column{.name = numbered(c)});
      if (!of_table) {
        const auto names = learned.is_object() ? learned.value("id2label", json::object()) : json::object();
        column.name = names.value(std::to_string(c), column.name);
        continue;
      }
      const auto& target = learned.at("targets").at(c);
      column = {.name = target.at("column"),
                .values = target.value("classes", column.values),
                .mean = target.value("mean", 0.0),
                .scale = target.value("scale", 1.0)};
    }
  }
  constexpr int64_t listed_of_others = 5;
  const int64_t wanted = listed.value_or(of_table ? 0 : listed_of_others);
  listed_ = wanted == 0 ? count : std::min(count, static_cast<size_t>(wanted));
}

void LabelAnswers::add(ordered_json& line, std::span<const float> outputs) const {
  if (!std::ranges::all_of(outputs, [](float value) { return std::isfinite(value); }))
    throw environment_error(
        "the model's output for {} is not a finite number: its weights are damaged, or the input has "
        "values far from those of training",
        line.dump());
  if (task_.classifies()) return add_class(line, outputs);
  task_.regresses() ? add_numbers(line, outputs) : add_labels(line, outputs);
}

void LabelAnswers::add_class(ordered_json& line, std::span<const float> outputs) const {
  const auto shares = softmax(outputs);
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto best = static_cast<size_t>(std::ranges::max_element(shares) - shares.begin());
  if (listed_ < order.size()) {
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t c) { return shares[c]; });
    order.resize(listed_);
  }
  line["label"] = classes_[best];
  auto& probabilities = line["probabilities"] = ordered_json::object();
  for (const size_t c : order) probabilities[classes_[c]] = shares[c];
}

void LabelAnswers::add_labels(ordered_json& line, std::span<const float> outputs) const {
  std::vector<double> shares;
  for (const double logit : outputs) shares.push_back(1 / (1 + std::exp(-logit)));
  const auto value = [&](size_t c) { return columns_[c].values.at(shares[c] > 0.5 ? 1 : 0); };
  if (shares.size() == 1) {
    line["label"] = value(0);
    line["probabilities"] = {{columns_[0].values.at(0), 1 - shares[0]}, {columns_[0].values.at(1), shares[0]}};
    return;
  }
  line["labels"] = ordered_json::object();
  line["probabilities"] = ordered_json::object();
  for (size_t c = 0; c < shares.size(); ++c) {
    line["labels"][columns_[c].name] = value(c);
    line["probabilities"][columns_[c].name] = shares[c];
  }
}

void LabelAnswers::add_numbers(ordered_json& line, std::span<const float> outputs) const {
  const auto value = [&](size_t c) { return columns_[c].mean + columns_[c].scale * outputs[c]; };
  if (outputs.size() == 1) {
    line["value"] = value(0);
    return;
  }
  auto& values = line["values"] = ordered_json::object();
  for (size_t c = 0; c < outputs.size(); ++c) values[columns_[c].name] = value(c);
}

}  // namespace runner
