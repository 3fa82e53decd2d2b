// The encoders as Hugging Face's BertForMaskedLM and RobertaForMaskedLM, or ...ForSequenceClassification: tensor names, and conversion
// of config.json in both directions.
#include <regex>
#include <set>

#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/encoder/encoder.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"

namespace runner::encoder {

namespace {

bool is_roberta(const std::string& name) { return name == "roberta"; }

/// Our name of a module -> theirs; of a layer, after "blocks.N." and "encoder.layer.N.".
struct ModuleName {
  const char *ours, *theirs;
};
constexpr ModuleName embedding_names[] = {
    {"embedding.tokens", "embeddings.word_embeddings"},
    {"embedding.positions", "embeddings.position_embeddings"},
    {"embedding.types", "embeddings.token_type_embeddings"},
    {"embedding.norm", "embeddings.LayerNorm"},
};
constexpr ModuleName layer_names[] = {
    {"attention.wq", "attention.self.query"},
    {"attention.wk", "attention.self.key"},
    {"attention.wv", "attention.self.value"},
    {"attention.wo", "attention.output.dense"},
    {"attention_norm", "attention.output.LayerNorm"},
    {"mlp.up", "intermediate.dense"},
    {"mlp.down", "output.dense"},
    {"mlp_norm", "output.LayerNorm"},
};
constexpr ModuleName bert_head_names[] = {{"head.transform", "cls.predictions.transform.dense"},
                                          {"head.norm", "cls.predictions.transform.LayerNorm"},
                                          {"head", "cls.predictions"}};
constexpr ModuleName roberta_head_names[] = {
    {"head.transform", "lm_head.dense"}, {"head.norm", "lm_head.layer_norm"}, {"head", "lm_head"}};

/// The heads of models with labels.
constexpr ModuleName bert_label_names[] = {{"head.dense", "bert.pooler.dense"}, {"head", "classifier"}};
constexpr ModuleName roberta_label_names[] = {{"head.dense", "classifier.dense"}, {"head", "classifier.out_proj"}};

template <size_t count>
std::string find_name(const ModuleName (&names)[count], const std::string& ours) {
  for (const auto& entry : names)
    if (ours == entry.ours) return entry.theirs;
  return "";
}

/// Files of the first years name the parameters of norms gamma and beta.
std::string old_name(const std::string& name) {
  if (name.ends_with("LayerNorm.weight")) return name.substr(0, name.size() - 6) + "gamma";
  if (name.ends_with("LayerNorm.bias")) return name.substr(0, name.size() - 4) + "beta";
  return "";
}

void add_old_names(HfTensor& tensor) {
  const auto known = tensor.aliases;
  if (const auto old = old_name(tensor.name); !old.empty()) tensor.aliases.push_back(old);
  for (const auto& alias : known)
    if (const auto old = old_name(alias); !old.empty()) tensor.aliases.push_back(old);
}

/// Settings of BERT's pooler, which this model does not have.
const std::set<std::string> pooler_keys = {"directionality",       "pooler_fc_size",       "pooler_num_attention_heads",
                                           "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"};

std::string read_activation(const HfConfigReader& reader) {
  const auto name = reader.get<std::string>("hidden_act", "gelu");
  if (name == "gelu") return "gelu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  throw usage_error("config.json: hidden_act = \"{}\" is not supported; allowed: gelu, gelu_new or gelu_pytorch_tanh",
                    name);
}

}  // namespace

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name) {
  const auto parts = split(name, '.');
  const auto& kind = parts.back();
  const auto module = name.substr(0, name.size() - kind.size() - 1);
  HfTensor tensor;
  if (parts[0] == "head" && labels_texts(model)) {
    tensor.replaceable = module == "head.dense";
    const auto theirs =
        is_roberta(model.name) ? find_name(roberta_label_names, module) : find_name(bert_label_names, module);
    tensor.name = theirs + "." + kind;
    if (theirs.starts_with("bert.")) tensor.aliases = {theirs.substr(5) + "." + kind};
  } else if (parts[0] == "head") {
    tensor.replaceable = true;
    tensor.name =
        (is_roberta(model.name) ? find_name(roberta_head_names, module) : find_name(bert_head_names, module)) + "." +
        kind;
    if (module == "head")
      tensor.aliases = {is_roberta(model.name) ? "lm_head.decoder.bias" : "cls.predictions.decoder.bias"};
  } else {
    std::string inside = find_name(embedding_names, module);
    if (parts[0] == "blocks") {
      const auto begin = parts[0].size() + parts[1].size() + 2;
      inside = fmt::format("encoder.layer.{}.{}", parts[1], find_name(layer_names, module.substr(begin)));
    }
    tensor.name = model.name + "." + inside + "." + kind;
    tensor.aliases = {inside + "." + kind};
  }
  add_old_names(tensor);
  return tensor;
}

bool hf_ignorable(const Recipe::Model& model, const std::string& name) {
  static const std::regex of_tokens(R"((cls|lm_head)\..*)"), of_labels(R"(classifier\..*)");
  if (std::regex_match(name, labels_texts(model) ? of_tokens : of_labels)) return true;
  static const std::regex others(
      R"(((bert|roberta)\.)?(embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias))|cls\.predictions\.decoder\.(weight|bias)|cls\.seq_relationship\.(weight|bias)|lm_head\.decoder\.(weight|bias))");
  return std::regex_match(name, others);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  const HfConfigReader reader(config);
  auto model = family_defaults(reader.require<std::string>("model_type"));
  const bool roberta = is_roberta(model.name);
  model.vocab_size = reader.get<int64_t>("vocab_size", roberta ? 50265 : 30522);
  model.dim = reader.get<int64_t>("hidden_size", 768);
  model.n_layers = reader.get<int64_t>("num_hidden_layers", 12);
  model.n_heads = reader.get<int64_t>("num_attention_heads", 12);
  model.hidden_dim = reader.get<int64_t>("intermediate_size", 3072);
  // transformers numbers the positions from pad_token_id + 1 on.
  if (roberta) model.position_offset = reader.get<int64_t>("pad_token_id", 1) + 1;
  model.max_seq_len = reader.get<int64_t>("max_position_embeddings", 512) - model.position_offset;
  model.type_vocab_size = reader.get<int64_t>("type_vocab_size", 2);
  model.norm_eps = reader.get("layer_norm_eps", 1e-12);
  model.init_std = reader.get("initializer_range", 0.02);
  const auto activation = read_activation(reader);
  if (activation != activation_of(model)) model.activation = activation;
  model.dropout = reader.get("hidden_dropout_prob", 0.1);
  if (const auto other = reader.get("attention_probs_dropout_prob", 0.1); other != model.dropout)
    throw usage_error(
        "config.json: attention_probs_dropout_prob = {} differs from hidden_dropout_prob = {}; model.dropout is one "
        "rate "
        "for both",
        other, model.dropout);
  reader.expect("position_embedding_type", "absolute");
  reader.expect("tie_word_embeddings", true);
  reader.expect("is_decoder", false);
  reader.expect("pruned_heads", nlohmann::json::object());
  read_labels(config, model);
  reader.check_all_read("of " + model.name, hf_ignored_keys_and(pooler_keys));
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  const bool roberta = is_roberta(model.name);
  if (roberta && model.position_offset < 1)
    throw usage_error(
        "model.position_offset = {}: Hugging Face's RoBERTa has at least 1, so this model cannot be exported to it",
        model.position_offset);
  if (!roberta && model.position_offset != 0)
    throw usage_error(
        "model.position_offset = {}: Hugging Face's BERT has none, so this model cannot be exported to it",
        model.position_offset);
  const std::string architecture =
      std::string(roberta ? "Roberta" : "Bert") + (spec.task ? "ForSequenceClassification" : "ForMaskedLM");
  nlohmann::json config = {{"architectures", {architecture}},
                           {"model_type", model.name},
                           {"vocab_size", spec.vocab_size},
                           {"hidden_size", model.dim},
                           {"num_hidden_layers", model.n_layers},
                           {"num_attention_heads", model.n_heads},
                           {"intermediate_size", hidden_dim(model)},
                           {"max_position_embeddings", position_rows(model)},
                           {"type_vocab_size", model.type_vocab_size},
                           {"layer_norm_eps", model.norm_eps},
                           {"initializer_range", model.init_std},
                           {"hidden_act", activation_of(model) == "gelu" ? "gelu" : "gelu_pytorch_tanh"},
                           {"hidden_dropout_prob", model.dropout},
                           {"attention_probs_dropout_prob", model.dropout},
                           {"position_embedding_type", "absolute"},
                           {"tie_word_embeddings", true}};
  config["pad_token_id"] = roberta ? model.position_offset - 1 : 0;
  if (spec.task) write_labels(model, *spec.task, config);
  return config;
}

}  // namespace runner::encoder
