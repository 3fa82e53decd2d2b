#include "runner/config/model_families.hpp"

#include <algorithm>

#include "runner/base/metric_names.hpp"

namespace runner {

namespace {

using Model = Recipe::Model;

struct Row {
  const char* name;
  const char* activation;
  /// Changes llama's values.
  void (*change)(Model& model);
};

void gemma(Model& model) {
  model.norm_eps = 1e-6;
  model.norm_offset = true;
  model.tie_embeddings = true;
}

void gemma2(Model& model) {
  gemma(model);
  model.norm_place = "both";
  model.attention_softcap = 50;
  model.logits_softcap = 30;
  model.sliding_window = 4096;
  model.layer_types = {"sliding_attention", "full_attention"};
}

void gemma3(Model& model) {
  gemma(model);
  model.norm_place = "both";
  model.qk_norm = "head";
  model.sliding_window = 4096;
  model.layer_types = std::vector<std::string>(6, "sliding_attention");
  model.layer_types.back() = "full_attention";
  model.rope_theta = 1e6;
  model.rope_local_theta = 1e4;
}

void gpt_neox(Model& model) {
  model.norm = "layer";
  model.parallel_residual = true;
  model.attention_bias = "all";
  model.mlp_bias = true;
  model.gated_mlp = false;
  model.partial_rotary_factor = 0.25;
}

void qwen3(Model& model) {
  model.norm_eps = 1e-6;
  model.qk_norm = "head";
}

void olmo2(Model& model) {
  model.norm_place = "post";
  model.qk_norm = "full";
}

void smollm3(Model& model) {
  model.norm_eps = 1e-6;
  model.rope_theta = 2e6;
  model.no_rope_every = 4;
  model.tie_embeddings = true;
}

void bert(Model& model) {
  model.norm_eps = 1e-12;
  model.tie_embeddings = true;
}

void roberta(Model& model) {
  bert(model);
  model.position_offset = 2;
}

void resnet(Model& model) {
  model.hidden_sizes = {256, 512, 1024, 2048};
  model.depths = {3, 4, 6, 3};
}

// clang-format off
const Row rows[] = {
    {"gpt", "gelu", nullptr},
    {"llama", "silu", [](Model&) {}},
    {"mistral", "silu", [](Model& model) { model.norm_eps = 1e-6, model.sliding_window = 4096; }},
    {"qwen2", "silu", [](Model& model) { model.norm_eps = 1e-6, model.attention_bias = "qkv"; }},
    {"qwen3", "silu", qwen3},
    {"gemma", "gelu_tanh", gemma},
    {"gemma2", "gelu_tanh", gemma2},
    {"gemma3", "gelu_tanh", gemma3},
    {"phi3", "silu", [](Model&) {}},
    {"gpt_neox", "gelu", gpt_neox},
    {"olmo2", "silu", olmo2},
    {"smollm3", "silu", smollm3},
    {"granite", "silu", [](Model& model) { model.norm_eps = 1e-6, model.attention_scale = 1.0; }},
    {"mlp", "relu", [](Model&) {}},
    {"bert", "gelu", bert},
    {"roberta", "gelu", roberta},
    {"vit", "gelu", [](Model& model) { model.norm_eps = 1e-12; }},
    {"resnet", "relu", resnet},
};
// clang-format on

const Row* find_row(const std::string& name) {
  const auto* row = std::ranges::find(rows, name, [](const Row& one) { return std::string(one.name); });
  return row == std::end(rows) ? nullptr : row;
}

}  // namespace

const std::vector<std::string>& model_family_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& row : rows) list.emplace_back(row.name);
    return list;
  }();
  return names;
}

Model family_defaults(const std::string& name) {
  Model model;
  model.name = name;
  const auto* row = find_row(name);
  if (!row || !row->change) return model;
  model.tie_embeddings = false;
  row->change(model);
  return model;
}

std::string activation_of(const Model& model) {
  const auto* row = find_row(model.name);
  return model.activation.value_or(row ? row->activation : "gelu");
}

std::string family_kind(const std::string& name) {
  if (name == "gpt" || name == "mlp" || name == "vit" || name == "resnet" || name == "plugin") return name;
  return name == "bert" || name == "roberta" ? "encoder" : "decoder";
}

bool is_language_model(const std::string& name) {
  const auto kind = family_kind(name);
  return kind != "mlp" && kind != "vit" && kind != "resnet";
}

bool predicts_tokens(const Recipe& recipe) {
  return is_language_model(recipe.model.name) && !recipe.data.labels_texts();
}

bool labels_texts(const Model& model) {
  return is_language_model(model.name) && model.name != "plugin" && model.num_labels.has_value();
}

std::vector<std::string> language_model_names() {
  auto names = model_family_names();
  std::erase_if(names, [](const auto& name) { return !is_language_model(name); });
  return names;
}

std::optional<int64_t> outputs_of(const Model& model) {
  return is_language_model(model.name) ? model.vocab_size : model.num_labels;
}

bool scales_embeddings(const std::string& name) { return name.starts_with("gemma"); }

const std::vector<std::string>& all_validation_metrics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& metric : metric_table())
      if (metric.of == MetricInfo::Of::task) list.emplace_back(metric.name);
    return list;
  }();
  return names;
}

std::vector<std::string> validation_metrics(const Recipe& recipe) {
  if (predicts_tokens(recipe)) return {};
  if (!recipe.train.loss) return all_validation_metrics();
  const auto& loss = *recipe.train.loss;
  const auto outputs = recipe.model.num_labels;
  if (loss != "cross_entropy" && loss != "bce") return {metric::val_mae, metric::val_r2};
  std::vector<std::string> names = {metric::val_accuracy, metric::val_f1};
  if (loss == "cross_entropy" && outputs.value_or(6) > 5) names.insert(names.begin() + 1, metric::val_top5_accuracy);
  if (!outputs || *outputs == (loss == "bce" ? 1 : 2)) names.emplace_back(metric::val_auc);
  return names;
}

}  // namespace runner
