// BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019): learned positions and types, attention to all tokens of a sequence, and
// norms after the residual sums.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/encoder/encoder.hpp"
#include "runner/models/family.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::encoder {

namespace {

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

std::vector<ParameterSpec> layer_norm_parameters(const Recipe::Model& model, const std::string& name) {
  return {vector_parameter(name + ".weight", model.dim, Init::Kind::ones),
          vector_parameter(name + ".bias", model.dim, Init::Kind::zeros)};
}

void append(std::vector<ParameterSpec>& parameters, std::vector<ParameterSpec> more) {
  std::ranges::move(more, std::back_inserter(parameters));
}

void add_biased_linear(BlockSpec& block, const std::string& name, int64_t out, int64_t in, double std) {
  block.parameters.push_back(matrix_parameter(name + ".weight", out, in, std));
  block.parameters.push_back(vector_parameter(name + ".bias", out, Init::Kind::zeros));
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
  if (first) block.parameters = layer_norm_parameters(model, "embedding.norm");
  for (const char* matrix : {".attention.wq", ".attention.wk", ".attention.wv"})
    add_biased_linear(block, layer + matrix, dim, dim, model.init_std);
  add_biased_linear(block, layer + ".attention.wo", dim, dim, model.init_std);
  append(block.parameters, layer_norm_parameters(model, layer + ".attention_norm"));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters) + attention_flops_per_token(dim, seq_len);
  block.output_elements_per_token = static_cast<double>(dim);
  return block;
}

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  add_biased_linear(block, layer + ".mlp.up", hidden, dim, model.init_std);
  add_biased_linear(block, layer + ".mlp.down", dim, hidden, model.init_std);
  append(block.parameters, layer_norm_parameters(model, layer + ".mlp_norm"));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  block.output_elements_per_token = static_cast<double>(dim);
  return block;
}

/// Transform, norm, and the product with the table of tokens.
BlockSpec masked_head(const Recipe::Model& model, int64_t vocab_size) {
  BlockSpec transform{.name = "head"};
  add_biased_linear(transform, "head.transform", model.dim, model.dim, model.init_std);
  append(transform.parameters, layer_norm_parameters(model, "head.norm"));
  auto head = head_block(model, std::move(transform.parameters), vocab_size, /*division=*/{});
  head.parameters.push_back(vector_parameter("head.bias", vocab_size, Init::Kind::zeros));
  head.forward_flops_per_token += 2.0 * static_cast<double>(model.dim * model.dim);
  return head;
}

/// The head of models of texts: of the first token a layer with tanh, dropout, and the outputs. RoBERTa has dropout before that layer,
/// too.
BlockSpec label_head(const Recipe::Model& model, int64_t seq_len) {
  BlockSpec head{.name = "head", .kind = BlockKind::head};
  add_biased_linear(head, "head.dense", model.dim, model.dim, model.init_std);
  add_biased_linear(head, "head", *model.num_labels, model.dim, model.init_std);
  head.forward_flops_per_token = matrix_flops_per_token(head.parameters) / static_cast<double>(seq_len);
  return head;
}

}  // namespace

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

int64_t position_rows(const Recipe::Model& model) { return model.max_seq_len + model.position_offset; }

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

}  // namespace runner::encoder

namespace runner {

const Family encoder_family = {.make_spec = encoder::make_spec,
                               .settings = encoder::settings,
                               .hf_tensor = encoder::hf_tensor,
                               .hf_ignorable = encoder::hf_ignorable,
                               .model_from_hf_config = encoder::model_from_hf_config,
                               .hf_config = encoder::hf_config};

}  // namespace runner
