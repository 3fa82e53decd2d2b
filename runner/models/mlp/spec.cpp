// Multilayer perceptron over the features of a row: linear layers with an activation and dropout between them.
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

/// Adds a layer with the initial values of torch.nn.Linear: weights and biases are uniform in +-1 / sqrt(in).
void add_linear(BlockSpec& block, const std::string& name, int64_t out, int64_t in) {
  const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))};
  block.parameters.push_back({.name = name + ".weight", .shape = {out, in}, .init = init});
  block.parameters.push_back({.name = name + ".bias", .shape = {out}, .init = init});
}

BlockSpec layer_block(size_t index, int64_t in, int64_t out) {
  const auto name = fmt::format("layers.{}", index);
  BlockSpec block{.name = name, .layer = name};
  add_linear(block, name, out, in);
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  block.output_elements_per_token = static_cast<double>(out);
  return block;
}

}  // namespace

namespace mlp {

namespace {

ModelSpec make_spec(const Recipe::Model& model, int64_t outputs, int64_t, RowKind, const TensorDivision&,
                    const ContextDivision&) {
  if (!model.num_features) throw usage_error("model.num_features: mlp needs the number of features, which a table has");
  ModelSpec spec;
  spec.batch = {features_field(*model.num_features)};
  spec.blocks.push_back(input_block(static_cast<double>(*model.num_features)));
  int64_t width = *model.num_features;
  for (size_t i = 0; i < model.hidden_sizes.size(); ++i) {
    spec.blocks.push_back(layer_block(i, width, model.hidden_sizes[i]));
    width = model.hidden_sizes[i];
  }
  spec.blocks.push_back(task_head_block(width, outputs));
  spec.dim = width;
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  return {{"num_features", model.num_features ? nlohmann::json(*model.num_features) : nlohmann::json()},
          {"hidden_sizes", model.hidden_sizes},
          {"activation", activation_of(model)}};
}

/// An MLP has no class in transformers. Its folder has the names of our parameters, and a config.json of our own.
Recipe::Model model_from_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  Recipe::Model model = family_defaults("mlp");
  model.num_features = reader.require<int64_t>("num_features");
  model.num_labels = reader.require<int64_t>("num_labels");
  model.hidden_sizes = reader.require<std::vector<int64_t>>("hidden_sizes");
  model.activation = reader.get<std::string>("hidden_act", "relu");
  model.dropout = reader.get("dropout", 0.0);
  // The columns and the loss, which are not the model's.
  reader.check_all_read("of mlp",
                        hf_ignored_keys_and({"features", "targets", "target_type", "version", "loss", "huber_delta"}));
  return model;
}

nlohmann::json config_of(const Recipe::Model& model, const ModelSpec& spec) {
  return {{"model_type", "mlp"},
          {"num_features", *model.num_features},
          {"num_labels", spec.task ? spec.task->outputs : spec.vocab_size},
          {"hidden_sizes", model.hidden_sizes},
          {"hidden_act", activation_of(model)},
          {"dropout", model.dropout}};
}

}  // namespace

}  // namespace mlp

const Family mlp_family = {.make_spec = mlp::make_spec,
                           .settings = mlp::settings,
                           .hf_tensor = [](const auto&, const std::string& name) { return HfTensor{.name = name}; },
                           .hf_ignorable = [](const auto&, const std::string&) { return false; },
                           .model_from_hf_config = mlp::model_from_config,
                           .hf_config = mlp::config_of};

}  // namespace runner
