// gpt as Hugging Face's GPT2LMHeadModel: tensor names, and conversion of config.json in both directions.
#include <regex>

#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_labels.hpp"

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

}  // namespace

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

  auto activation = reader.get<std::string>("activation_function", "gelu_new");
  if (activation == "gelu")
    model.activation = "gelu";
  else if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    model.activation = "gelu_tanh";
  else
    throw usage_error(
        "config.json: activation_function = \"{}\" is not supported; allowed: gelu, gelu_new or "
        "gelu_pytorch_tanh",
        activation);

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

}  // namespace runner::gpt
