// GPT-2 (Radford et al. 2019): learned positions, pre-LayerNorm, fused qkv, GELU feed-forward of four times the width.
#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::gpt {

namespace {

void check_gpt(const Recipe::Model& model) {
  auto decoders_only = [](const char* key, bool set) {
    if (set)
      throw usage_error("model.{}: gpt has no such option; models with rotary positions such as llama have it", key);
  };
  decoders_only("n_kv_heads", model.n_kv_heads.has_value());
  decoders_only("head_dim", model.head_dim.has_value());
  decoders_only("ffn_dim_multiplier", model.ffn_dim_multiplier.has_value());
  decoders_only("rope_scaling", model.rope_scaling.has_value());
  check_gelu(model);
}

std::vector<ParameterSpec> norm_parameters(const Recipe::Model& model, const std::string& name) {
  std::vector<ParameterSpec> parameters = {vector_parameter(name + ".weight", model.dim, Init::Kind::ones)};
  if (model.bias) parameters.push_back(vector_parameter(name + ".bias", model.dim, Init::Kind::zeros));
  return parameters;
}

/// Adds the parameters of a linear layer. The bias of a row-parallel layer is added to the sum over the ranks.
void add_linear(BlockSpec& block, const Recipe::Model& model, const std::string& name, int64_t out, int64_t in,
                double std, const TensorSplit& split) {
  block.parameters.push_back(matrix_parameter(name + ".weight", out, in, std, split));
  if (!model.bias) return;
  const auto of_bias = split.dim == 0 ? std::optional(split) : std::nullopt;
  block.parameters.push_back(vector_parameter(name + ".bias", out, Init::Kind::zeros, of_bias));
}

void divide_all(BlockSpec& block, const TensorDivision& division) {
  for (auto& parameter : block.parameters) divide(parameter, division);
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len,
                          const TensorDivision& division, const ContextDivision& context) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim;
  block.parameters = norm_parameters(model, layer + ".attention_norm");
  const int64_t head = dim / model.n_heads;
  add_linear(block, model, layer + ".attention.qkv", 3 * dim, dim, model.init_std,
             {.dim = 0, .parts = {dim, dim, dim}, .unit = head});
  add_linear(block, model, layer + ".attention.out", dim, dim, residual_std(model), {.dim = 1, .unit = head});
  divide_all(block, division);

  const HiddenElements h(dim, division);
  const int64_t heads = division.most(model.n_heads);
  block.forward_flops_per_token =
      matrix_flops_per_token(block.parameters) + attention_flops_per_token(heads * head, seq_len);
  block.output_elements_per_token = h.stream;
  add_context_traffic(block, {.heads = heads, .key_heads = heads, .head_dim = head}, context);
  add_enter(block, h.all, division);
  add_leave(block, {.elements_per_token = h.all, .of_output = true}, division);
  return block;
}

}  // namespace

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer, const TensorDivision& division) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  block.parameters = norm_parameters(model, layer + ".mlp_norm");
  add_linear(block, model, layer + ".mlp.up", hidden, dim, model.init_std, {.dim = 0});
  add_linear(block, model, layer + ".mlp.down", dim, hidden, residual_std(model), {.dim = 1});
  divide_all(block, division);

  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  const HiddenElements h(dim, division);
  block.output_elements_per_token = h.stream;
  add_enter(block, h.all, division);
  add_leave(block, {.elements_per_token = h.all, .of_output = true}, division);
  return block;
}

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context) {
  check_gpt(model);
  ModelSpec spec;
  spec.batch = rows == RowKind::packed ? packed_fields(seq_len) : token_fields(seq_len);
  spec.blocks.push_back(embedding_block(
      model,
      {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std, TensorSplit{}),
       matrix_parameter("embedding.positions.weight", model.max_seq_len, model.dim, model.init_std)},
      division));
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer, seq_len, division, context));
    spec.blocks.push_back(mlp_block(model, layer, division));
  }
  auto norm = norm_parameters(model, "head.norm");
  spec.blocks.push_back(labels_texts(model) ? text_label_head_block(model, std::move(norm), seq_len)
                                            : head_block(model, std::move(norm), vocab_size, division));
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  return {{"max_seq_len", model.max_seq_len},  // the number of learned positions
          {"hidden_dim", hidden_dim(model)},
          {"activation", activation_of(model)},
          {"bias", model.bias}};
}

}  // namespace runner::gpt

namespace runner {

const Family gpt_family = {.make_spec = gpt::make_spec,
                           .settings = gpt::settings,
                           .hf_tensor = gpt::hf_tensor,
                           .hf_ignorable = gpt::hf_ignorable,
                           .model_from_hf_config = gpt::model_from_hf_config,
                           .hf_config = gpt::hf_config};

}  // namespace runner
