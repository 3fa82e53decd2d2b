// BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019): learned positions and types, attention to all tokens of a sequence, and
// norms after the residual sums.
// The models have the tensors and settings of Hugging Face's BertForMaskedLM and RobertaForMaskedLM; with model.num_labels those of
// BertForSequenceClassification and RobertaForSequenceClassification.
#include <algorithm>
#include <regex>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::encoder {

namespace {

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

/// Rows of the table of positions: the first `position_offset` of them are unused.
int64_t position_rows(const Recipe::Model& model) { return model.max_seq_len + model.position_offset; }

bool is_roberta(const std::string& name) { return name == "roberta"; }

// Names of layers come after "blocks.N." and "encoder.layer.N.".
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
  const auto activation = read_gelu(reader, "hidden_act", "gelu");
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

void check_encoder(const Recipe::Model& model) {
  if (model.type_vocab_size < 1)
    throw usage_error("model.type_vocab_size = {}: must be at least 1", model.type_vocab_size);
  if (model.position_offset < 0)
    throw usage_error("model.position_offset = {}: must not be negative", model.position_offset);
  if (!model.tie_embeddings)
    throw usage_error("model.tie_embeddings = false: the output layer of {} always shares the embedding's weight",
                      model.name);
  check_gelu(model);
}

void append(std::vector<ParameterSpec>& parameters, std::vector<ParameterSpec> more) {
  std::ranges::move(more, std::back_inserter(parameters));
}

/// Only the lookups: the backward of the first block reads no parameters. Its norm is in the first transformer block.
BlockSpec encoder_embedding(const Recipe::Model& model, int64_t vocab_size) {
  return embedding_block(
      model,
      {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std),
       matrix_parameter("embedding.positions.weight", position_rows(model), model.dim, model.init_std),
       matrix_parameter("embedding.types.weight", model.type_vocab_size, model.dim, model.init_std)},
      /*division=*/{});
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len, bool first) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim;
  if (first) block.parameters = layer_norm_parameters("embedding.norm", model.dim);
  for (const char* matrix : {".attention.wq", ".attention.wk", ".attention.wv", ".attention.wo"})
    add_linear(block, layer + matrix, dim, dim, model.init_std, /*bias=*/true);
  append(block.parameters, layer_norm_parameters(layer + ".attention_norm", model.dim));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters) + attention_flops_per_token(dim, seq_len);
  block.output_elements_per_token = static_cast<double>(dim);
  return block;
}

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  add_linear(block, layer + ".mlp.up", hidden, dim, model.init_std, /*bias=*/true);
  add_linear(block, layer + ".mlp.down", dim, hidden, model.init_std, /*bias=*/true);
  append(block.parameters, layer_norm_parameters(layer + ".mlp_norm", model.dim));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  block.output_elements_per_token = static_cast<double>(dim);
  return block;
}

/// Transform, norm, and the product with the table of tokens.
BlockSpec masked_head(const Recipe::Model& model, int64_t vocab_size) {
  BlockSpec transform{.name = "head"};
  add_linear(transform, "head.transform", model.dim, model.dim, model.init_std, /*bias=*/true);
  append(transform.parameters, layer_norm_parameters("head.norm", model.dim));
  auto head = head_block(model, std::move(transform.parameters), vocab_size, /*division=*/{});
  head.parameters.push_back(vector_parameter("head.bias", vocab_size, Init::Kind::zeros));
  head.forward_flops_per_token += 2.0 * static_cast<double>(model.dim * model.dim);
  return head;
}

/// The head of models of texts: of the first token a layer with tanh, dropout, and the outputs. RoBERTa has dropout before that layer,
/// too.
BlockSpec label_head(const Recipe::Model& model, int64_t seq_len) {
  BlockSpec head{.name = "head", .kind = BlockKind::head};
  add_linear(head, "head.dense", model.dim, model.dim, model.init_std, /*bias=*/true);
  add_linear(head, "head", *model.num_labels, model.dim, model.init_std, /*bias=*/true);
  head.forward_flops_per_token = matrix_flops_per_token(head.parameters) / static_cast<double>(seq_len);
  return head;
}

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision&, const ContextDivision&) {
  check_encoder(model);
  ModelSpec spec;
  spec.batch = rows == RowKind::packed ? packed_fields(seq_len) : token_fields(seq_len);
  spec.blocks.push_back(encoder_embedding(model, vocab_size));
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer, seq_len, i == 0));
    spec.blocks.push_back(mlp_block(model, layer));
  }
  spec.blocks.push_back(labels_texts(model) ? label_head(model, seq_len) : masked_head(model, vocab_size));
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  return {{"max_seq_len", model.max_seq_len},  // the number of learned positions
          {"hidden_dim", hidden_dim(model)},
          {"activation", activation_of(model)},
          {"type_vocab_size", model.type_vocab_size},
          {"position_offset", model.position_offset}};
}

}  // namespace

}  // namespace runner::encoder

namespace runner {

const Family encoder_family = {.make_spec = encoder::make_spec,
                               .settings = encoder::settings,
                               .hf_tensor = encoder::hf_tensor,
                               .hf_ignorable = encoder::hf_ignorable,
                               .model_from_hf_config = encoder::model_from_hf_config,
                               .hf_config = encoder::hf_config};

}  // namespace runner
