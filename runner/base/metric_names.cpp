#include "runner/base/metric_names.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// Names with these words at that place have larger values that are better. Upper and lower case are the same.
struct NamePattern {
  enum class At { anywhere, end, whole };
  At at;
  std::string_view text;

  bool matches(std::string_view name) const {
    return at == At::anywhere ? name.find(text) != std::string_view::npos
           : at == At::end    ? name.ends_with(text)
                              : name == text;
  }
  std::string like() const {
    std::string out = at == At::whole ? "" : "%";
    for (const char c : text) out += (c == '_' || c == '%' || c == '!' ? "!" : "") + std::string(1, c);
    return out + (at == At::anywhere ? "%" : "");
  }
};

constexpr NamePattern higher_patterns[] = {
    {NamePattern::At::anywhere, "accuracy"},
    {NamePattern::At::whole, "acc"},
    {NamePattern::At::end, "/acc"},
    {NamePattern::At::end, "_acc"},
    {NamePattern::At::end, "f1"},
    {NamePattern::At::end, "auc"},
    {NamePattern::At::end, "r2"},
    {NamePattern::At::end, "precision"},
    {NamePattern::At::end, "recall"},
    {NamePattern::At::anywhere, "bleu"},
    {NamePattern::At::anywhere, "rouge"},
    {NamePattern::At::anywhere, "reward"},
    {NamePattern::At::end, "_per_s"},
};

}  // namespace

const std::vector<MetricInfo>& metric_table() {
  using enum MetricInfo::Of;
  static const std::vector<MetricInfo> table = {
      {metric::loss, "", step, "Mean training loss over the tokens or samples of the step."},
      {metric::val_loss, "", validation, "Mean loss over the validation data."},
      {metric::lr, "", step, "Learning rate of the step."},
      {metric::grad_norm, "", step, "2-norm of all gradients, before clipping."},
      {metric::tokens_per_s, "tokens/s", step, "Tokens of the step divided by its time, over all ranks."},
      {metric::samples_per_s, "samples/s", step, "Samples of the step divided by its time, over all ranks."},
      {metric::step_seconds, "s", step, "Time of the step."},
      {metric::data_wait_share, "", step, "Share of the step's time in which rank 0 waited for data, 0 to 1."},
      {metric::epoch, "", step,
       "Epochs trained on so far, with the part of the last one. Data that are streamed have it from the end of the "
       "first epoch on."},
      {metric::tokens, "tokens", step, "Tokens trained on so far, over all ranks and attempts."},
      {metric::samples, "samples", step, "Samples trained on so far, over all ranks and attempts."},
      {metric::seconds, "s", step, "Time of training so far, over all attempts and without the pauses between."},
      {metric::memory_bytes, "bytes", step, "Largest number of tensor bytes so far on the device of rank 0."},
      {metric::val_accuracy, "", task, "Share of validation samples with the right label, 0 to 1."},
      {metric::val_top5_accuracy, "", task, "Share whose label is one of the five most probable, 0 to 1."},
      {metric::val_f1, "", task, "F1 score, 0 to 1."},
      {metric::val_auc, "", task, "Area under the ROC curve, 0 to 1."},
      {metric::val_mae, "", task, "Mean absolute error, in the unit of the target."},
      {metric::val_r2, "", task, "Coefficient of determination; 1 is perfect."},
  };
  return table;
}

const MetricInfo* find_metric(std::string_view name) {
  const auto found = std::ranges::find(metric_table(), name, &MetricInfo::name);
  return found != metric_table().end() ? &*found : nullptr;
}

bool higher_is_better(std::string_view name) {
  const std::string low = lower(name);
  return std::ranges::any_of(higher_patterns, [&](const auto& pattern) { return pattern.matches(low); });
}

std::vector<std::string> higher_is_better_patterns() {
  std::vector<std::string> list;
  for (const auto& pattern : higher_patterns) list.push_back(pattern.like());
  return list;
}

void sort_metrics(std::vector<std::string>& names) {
  const auto place = [](const std::string& name) {
    return std::ranges::find(metric_table(), name, &MetricInfo::name) - metric_table().begin();
  };
  std::ranges::stable_sort(names, {}, place);
}

const char* rate_metric(std::string_view unit) {
  return unit == "samples" ? metric::samples_per_s : metric::tokens_per_s;
}

const char* total_metric(std::string_view unit) { return unit == "samples" ? metric::samples : metric::tokens; }

std::string metric_text(double value) {
  if (!std::isfinite(value)) return nonfinite_word(value);
  const double size = std::abs(value);
  return size == 0 || (size >= 1e-3 && size < 1e5) ? fmt::format("{:.4f}", value) : fmt::format("{:.3e}", value);
}

std::string exact_metric_text(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : nonfinite_word(value);
}

}  // namespace runner
