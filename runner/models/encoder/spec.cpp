// BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019): learned positions and types, attention to all tokens of a sequence, and
// norms after the residual sums.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/encoder/encoder.hpp"
#include "runner/models/family.hpp"
#include "runner/models/moments_without_graph.hpp"
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
BlockSpec encoder_embedding(Recipe::Model model, int64_t vocab_size, bool packed) {
  model.dropout = 0;  // follows the norm
  auto block =
      embedding_block(model,
                      {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std),
                       matrix_parameter("embedding.positions.weight", position_rows(model), model.dim, model.init_std),
                       matrix_parameter("embedding.types.weight", model.type_vocab_size, model.dim, model.init_std)},
                      /*division=*/{}, /*lookups=*/packed ? 2 : 1);
  if (packed) block.moments_without_graph.front().float32_per_token = 2;  // positions with the offset, 8 bytes each
  return block;
}

/// The backward of a residual sum and its norm, which comes first: the arrived gradient and that of the sum.
MemoryMoment norm_moment(const BlockSpec& block, const Recipe::Model& model) {
  const auto d = static_cast<double>(model.dim);
  return {.compute_elements_per_token = block.saved.compute_elements_per_token + 2 * d, .arriving = 2 * model.dim};
}

/// In order: norm, output projection, attention, projections of values, keys and queries, and the embedding's norm in the first block.
std::vector<MemoryMoment> attention_moments(const BlockSpec& block, const Recipe::Model& model, int64_t seq_len,
                                            bool first) {
  const auto d = static_cast<double>(model.dim), saved = block.saved.compute_elements_per_token;
  const double masked = masked_elements(model);
  const int64_t norm = 2 * model.dim, out = elements_of(block.parameters, {".wo.weight", ".wo.bias"});
  const int64_t one = elements_of(block.parameters, {".wq.weight", ".wq.bias"});
  const double before = first ? d : 0;  // the input of the embedding's norm
  auto attention = model.dropout > 0 ? dropout_attention_moment(model.n_heads, seq_len, 12 * d)
                                     : MemoryMoment{.compute_elements_per_token = 10 * d};
  attention.compute_elements_per_token += before;
  attention.arrived = norm + out;
  std::vector<MemoryMoment> moments = {norm_moment(block, model),
                                       {.compute_elements_per_token = saved + d + masked,
                                        .arrived = norm,
                                        .arriving = out,
                                        .released_per_token = masked,
                                        .out_features = model.dim,
                                        .in_features = model.dim},
                                       attention};
  // Input, gradient of the sum, gradients of what is not done yet, and of the input so far.
  for (int done = 0; done < 3; ++done)
    moments.push_back({.compute_elements_per_token = (5.0 - done + (done > 0 ? 1 : 0)) * d + d + before,
                       .arrived = norm + out + done * one,
                       .arriving = one,
                       .released_per_token = d,
                       .out_features = model.dim,
                       .in_features = model.dim});
  if (first)
    moments.push_back(
        {.compute_elements_per_token = 3 * d + masked, .arrived = block.parameter_count() - norm, .arriving = norm});
  moments.push_back({.compute_elements_per_token = 3 * d, .arrived = block.parameter_count()});
  return moments;
}

/// Queries, keys and values are freed before the output projection.
std::vector<MemoryMoment> attention_without_graph(const Recipe::Model& model, int64_t seq_len, bool first,
                                                  bool packed) {
  const auto d = static_cast<double>(model.dim), x = first ? 2 * d : d;  // with the norm of the embedding
  MomentsWithoutGraph moments(model, seq_len);
  if (first) moments.add_dropout(x, d);
  moments.add_product(x + 2 * d, model.dim, model.dim);
  moments.add_fused_attention(x + 3 * d, d);
  if (packed)
    moments.add_without_dropout({.compute_elements_per_token = x + 5 * d});  // no kernel takes all sequences at once
  moments.add_dropout_attention(x + 3 * d, d, /*repeats=*/false);
  moments.add_product(x + d, model.dim, model.dim);
  moments.add_dropout(x + 2 * d, d);
  moments.add(x + 3 * d);
  return moments.list;
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len, bool first,
                          bool packed) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim;
  if (first) block.parameters = layer_norm_parameters(model, "embedding.norm");
  for (const char* matrix : {".attention.wq", ".attention.wk", ".attention.wv"})
    add_biased_linear(block, layer + matrix, dim, dim, model.init_std);
  add_biased_linear(block, layer + ".attention.wo", dim, dim, model.init_std);
  append(block.parameters, layer_norm_parameters(model, layer + ".attention_norm"));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters) + attention_flops_per_token(dim, seq_len);
  // Block input, queries, keys, values, attention's result, and the residual sum, which is the norm's input.
  block.saved.compute_elements_per_token = static_cast<double>((first ? 7 : 6) * dim);
  block.saved.float32_per_token = (first ? 4 : 2) + (model.dropout > 0 ? 0.0 : static_cast<double>(model.n_heads));
  block.output_elements_per_token = static_cast<double>(dim);
  block.backward_moments = attention_moments(block, model, seq_len, first);
  block.moments_without_graph = attention_without_graph(model, seq_len, first, packed);
  return block;
}

/// In order: norm, second projection, GELU, first projection.
std::vector<MemoryMoment> mlp_moments(const BlockSpec& block, const Recipe::Model& model) {
  const int64_t dim = model.dim, hidden = hidden_dim(model), norm = 2 * dim;
  const auto d = static_cast<double>(dim), h = static_cast<double>(hidden),
             saved = block.saved.compute_elements_per_token;
  const double masked = masked_elements(model);
  const int64_t down = elements_of(block.parameters, {".down.weight", ".down.bias"});
  const int64_t up = elements_of(block.parameters, {".up.weight", ".up.bias"});
  return {norm_moment(block, model),
          {.compute_elements_per_token = saved + masked + h,
           .arrived = norm,
           .arriving = down,
           .released_per_token = h + masked,
           .out_features = dim,
           .in_features = hidden},
          {.compute_elements_per_token = saved + h, .arrived = norm + down},
          {.compute_elements_per_token = saved - h + d,
           .arrived = norm + down,
           .arriving = up,
           .released_per_token = h,
           .out_features = hidden,
           .in_features = dim},
          {.compute_elements_per_token = 3 * d, .arrived = block.parameter_count()}};
}

/// GELU's input is freed before the second projection.
std::vector<MemoryMoment> mlp_without_graph(const Recipe::Model& model) {
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  const auto d = static_cast<double>(dim), h = static_cast<double>(hidden);
  MomentsWithoutGraph moments(model, /*seq_len=*/0);
  moments.add_product(d, hidden, dim);
  moments.add(d + 2 * h);
  moments.add_product(d + h, dim, hidden);
  moments.add_dropout(2 * d + h, d);
  moments.add(3 * d + h);  // the residual sum and its norm
  return moments.list;
}

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  add_biased_linear(block, layer + ".mlp.up", hidden, dim, model.init_std);
  add_biased_linear(block, layer + ".mlp.down", dim, hidden, model.init_std);
  append(block.parameters, layer_norm_parameters(model, layer + ".mlp_norm"));
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  // Block input, GELU's input and output, and the residual sum.
  block.saved.compute_elements_per_token = static_cast<double>(2 * dim + 2 * hidden);
  block.saved.float32_per_token = 2;
  block.inputs = {{.matrices = {layer + ".mlp.down.weight"}, .elements_per_token = static_cast<double>(hidden)}};
  block.output_elements_per_token = static_cast<double>(dim);
  block.backward_moments = mlp_moments(block, model);
  block.moments_without_graph = mlp_without_graph(model);
  return block;
}

/// Transform, norm, and the product with the table of tokens.
BlockSpec masked_head(const Recipe::Model& model, int64_t vocab_size) {
  BlockSpec transform{.name = "head"};
  add_biased_linear(transform, "head.transform", model.dim, model.dim, model.init_std);
  append(transform.parameters, layer_norm_parameters(model, "head.norm"));
  auto head = head_block(model, std::move(transform.parameters), vocab_size, {.saved_float32 = 2}, /*division=*/{});
  head.parameters.push_back(vector_parameter("head.bias", vocab_size, Init::Kind::zeros));
  const auto d = static_cast<double>(model.dim);
  const auto matrix = model.dim * model.dim;
  head.forward_flops_per_token += 2.0 * static_cast<double>(matrix);
  // In addition: GELU's input and output.
  head.saved.compute_elements_per_token += 2 * d;
  head.saved.gradient_elements += vocab_size;
  for (auto& moment : head.forward_moments) moment.compute_elements_per_token += 2 * d;
  for (auto& moment : head.backward_moments) moment.compute_elements_per_token += 2 * d;
  head.backward_moments.back().arrived = vocab_size;
  head.backward_moments.back().arriving = 2 * model.dim;
  head.backward_moments.front().arriving = vocab_size;
  // Without a graph: the input, and the results of the layer, of GELU and of the norm.
  head.moments_without_graph = {{.compute_elements_per_token = 4 * d, .float32_per_token = 2}};
  head.backward_moments.push_back({.compute_elements_per_token = 4 * d,
                                   .arrived = vocab_size + 2 * model.dim,
                                   .arriving = matrix + model.dim,
                                   .released_per_token = d,
                                   .out_features = model.dim,
                                   .in_features = model.dim});
  return head;
}

/// The head of models of texts: of the first token a layer with tanh, dropout, and the outputs. RoBERTa has dropout before that layer,
/// too.
BlockSpec label_head(const Recipe::Model& model, int64_t seq_len) {
  BlockSpec head{.name = "head", .kind = BlockKind::head};
  const int64_t outputs = *model.num_labels, matrix = model.dim * model.dim;
  add_biased_linear(head, "head.dense", model.dim, model.dim, model.init_std);
  add_biased_linear(head, "head", outputs, model.dim, model.init_std);
  const auto per_row = 1.0 / static_cast<double>(seq_len), d = static_cast<double>(model.dim),
             k = static_cast<double>(outputs);
  head.forward_flops_per_token = matrix_flops_per_token(head.parameters) * per_row;
  // The input; of each row the first token, the result of tanh, that after dropout, and the log-softmax.
  const double rows = (model.dropout > 0 ? 3 : 2) * d * per_row;
  head.saved.compute_elements_per_token = d + rows;
  head.saved.float32_per_token = k * per_row;
  const int64_t last = outputs * model.dim + outputs;
  head.backward_moments = {{.compute_elements_per_token = d + rows + 3 * k * per_row},
                           {.compute_elements_per_token = d + rows + (d + k) * per_row,
                            .arriving = last,
                            .out_features = outputs,
                            .in_features = model.dim},
                           {.compute_elements_per_token = d + 4 * d * per_row,
                            .arrived = last,
                            .arriving = matrix + model.dim,
                            .out_features = model.dim,
                            .in_features = model.dim},
                           // The gradient of all tokens.
                           {.compute_elements_per_token = 2 * d + d * per_row, .arrived = head.parameter_count()}};
  return head;
}

}  // namespace

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

int64_t position_rows(const Recipe::Model& model) { return model.max_seq_len + model.position_offset; }

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision&, const ContextDivision&) {
  check_encoder(model);
  ModelSpec spec;
  const bool packed = rows != RowKind::one_sequence;
  spec.batch = rows == RowKind::packed ? packed_fields(seq_len) : token_fields(seq_len);
  spec.blocks.push_back(encoder_embedding(model, vocab_size, packed));
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer, seq_len, i == 0, packed));
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
