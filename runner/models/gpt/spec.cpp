// GPT-2 (Radford et al. 2019): learned positions, pre-LayerNorm, fused qkv, GELU feed-forward of four times the width.
// The model has the tensors and settings of Hugging Face's GPT2LMHeadModel.
#include <regex>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::gpt {

namespace {

/// Our name of a module after "blocks.N." -> GPT-2's name after "h.N.". GPT-2's four linear layers are Conv1D layers.
struct GptBlockName {
  const char* ours;
  const char* theirs;
  bool conv1d;
};
constexpr GptBlockName gpt_block_names[] = {
    {"attention_norm", "ln_1", false}, {"attention.qkv", "attn.c_attn", true}, {"attention.out", "attn.c_proj", true},
    {"mlp_norm", "ln_2", false},       {"mlp.up", "mlp.c_fc", true},           {"mlp.down", "mlp.c_proj", true},
};

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name) {
  auto inside = [](std::string theirs, bool transposed = false) {
    return HfTensor{"transformer." + theirs, {theirs}, transposed};
  };
  if (name == "embedding.tokens.weight") return inside("wte.weight");
  if (name == "embedding.positions.weight") return inside("wpe.weight");
  if (name == "head.weight") return {labels_texts(model) ? "score.weight" : "lm_head.weight"};
  auto parts = split(name, '.');
  if (parts[0] == "head") return inside("ln_f." + parts.back());
  for (const auto& entry : gpt_block_names) {
    if (name != fmt::format("blocks.{}.{}.{}", parts[1], entry.ours, parts.back())) continue;
    return inside(fmt::format("h.{}.{}.{}", parts[1], entry.theirs, parts.back()),
                  entry.conv1d && parts.back() == "weight");
  }
  RUNNER_CHECK(false, "`{}` is not a parameter of gpt", name);
  return {};
}

bool hf_ignorable(const Recipe::Model& model, const std::string& name) {
  const bool labels = labels_texts(model);
  if ((labels || model.tie_embeddings) && name == "lm_head.weight") return true;
  if (!labels && name == "score.weight") return true;
  static const std::regex causal_mask(R"((transformer\.)?h\.\d+\.attn\.(bias|masked_bias))");
  return std::regex_match(name, causal_mask);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  reader.expect("scale_attn_weights", true);
  reader.expect("scale_attn_by_inverse_layer_idx", false);
  reader.expect("add_cross_attention", false);
  Recipe::Model model;
  model.name = "gpt";
  model.vocab_size = reader.require<int64_t>("vocab_size");
  model.max_seq_len = reader.require<int64_t>("n_positions");
  model.dim = reader.require<int64_t>("n_embd");
  model.n_layers = reader.require<int64_t>("n_layer");
  model.n_heads = reader.require<int64_t>("n_head");
  if (reader.has("n_inner")) model.hidden_dim = reader.require<int64_t>("n_inner");
  model.norm_eps = reader.get("layer_norm_epsilon", 1e-5);
  model.init_std = reader.get("initializer_range", 0.02);
  model.bias = true;
  model.tie_embeddings = reader.get("tie_word_embeddings", true);
  model.activation = read_gelu(reader, "activation_function", "gelu_new");
  model.dropout = reader.get("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"})
    if (reader.get(other, 0.1) != model.dropout)
      throw usage_error("config.json: {} = {} differs from resid_pdrop = {}; model.dropout is one rate for all three",
                        other, reader.get(other, 0.1), model.dropout);
  read_labels(config, model);
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  if (!model.bias)
    throw usage_error(
        "model.bias = false: Hugging Face's GPT-2 always has biases, so this model cannot be exported to it");
  // Token ids depend on the tokenizer. GPT2Config's default of 50256 would be outside of a small vocabulary.
  nlohmann::json config = {{"architectures", {spec.task ? "GPT2ForSequenceClassification" : "GPT2LMHeadModel"}},
                           {"model_type", "gpt2"},
                           {"vocab_size", spec.vocab_size},
                           {"n_positions", model.max_seq_len},
                           {"n_embd", model.dim},
                           {"n_layer", model.n_layers},
                           {"n_head", model.n_heads},
                           {"n_inner", hidden_dim(model)},
                           {"activation_function", activation_of(model) == "gelu" ? "gelu" : "gelu_new"},
                           {"layer_norm_epsilon", model.norm_eps},
                           {"initializer_range", model.init_std},
                           {"resid_pdrop", model.dropout},
                           {"embd_pdrop", model.dropout},
                           {"attn_pdrop", model.dropout},
                           {"tie_word_embeddings", model.tie_embeddings},
                           {"bos_token_id", nullptr},
                           {"eos_token_id", nullptr}};
  if (!spec.task) return config;
  config["pad_token_id"] = nullptr;  // whoever writes the folder may know it
  write_labels(model, *spec.task, config);
  return config;
}

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

void divide_all(BlockSpec& block, const TensorDivision& division) {
  for (auto& parameter : block.parameters) divide(parameter, division);
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len,
                          const TensorDivision& division, const ContextDivision& context) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim;
  block.parameters = layer_norm_parameters(layer + ".attention_norm", dim, model.bias);
  const int64_t head = dim / model.n_heads;
  add_linear(block, layer + ".attention.qkv", 3 * dim, dim, model.init_std, model.bias,
             TensorSplit{.dim = 0, .parts = {dim, dim, dim}, .unit = head});
  add_linear(block, layer + ".attention.out", dim, dim, residual_std(model), model.bias,
             TensorSplit{.dim = 1, .unit = head});
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
  auto norm = layer_norm_parameters("head.norm", model.dim, model.bias);
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

}  // namespace

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer, const TensorDivision& division) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  block.parameters = layer_norm_parameters(layer + ".mlp_norm", dim, model.bias);
  add_linear(block, layer + ".mlp.up", hidden, dim, model.init_std, model.bias, TensorSplit{.dim = 0});
  add_linear(block, layer + ".mlp.down", dim, hidden, residual_std(model), model.bias, TensorSplit{.dim = 1});
  divide_all(block, division);

  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  const HiddenElements h(dim, division);
  block.output_elements_per_token = h.stream;
  add_enter(block, h.all, division);
  add_leave(block, {.elements_per_token = h.all, .of_output = true}, division);
  return block;
}

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

}  // namespace runner::gpt

namespace runner {

const Family gpt_family = {.make_spec = gpt::make_spec,
                           .settings = gpt::settings,
                           .hf_tensor = gpt::hf_tensor,
                           .hf_ignorable = gpt::hf_ignorable,
                           .model_from_hf_config = gpt::model_from_hf_config,
                           .hf_config = gpt::hf_config};

}  // namespace runner
