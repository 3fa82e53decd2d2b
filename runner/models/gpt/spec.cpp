// GPT-2 (Radford et al. 2019): learned positions, pre-LayerNorm, fused qkv, GELU feed-forward of four times the width.
#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/context_spec.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/moments_without_graph.hpp"
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

/// Elements per token on the rank with the most.
struct Elements {
  Elements(const Recipe::Model& model, const TensorDivision& division)
      : hidden(model.dim, division),
        masked(division.of_rows(masked_elements(model))),
        heads(division.most(model.n_heads)),
        columns(heads * (model.dim / model.n_heads)),
        mlp_columns(division.most(hidden_dim(model))),
        q(static_cast<double>(columns)),
        mlp(static_cast<double>(mlp_columns)) {}
  HiddenElements hidden;
  double masked;  ///< the gradient of a branch, if it is not the residual's
  int64_t heads, columns, mlp_columns;
  double q;    ///< queries, keys, values or the result of attention
  double mlp;  ///< the input of GELU
  /// The gradient of the last product, in addition to the residual's.
  double last_gradient() const { return hidden.gathers ? hidden.all : masked; }
};

/// Moments of high memory use in backward, in order: output projection, attention, input projection, norm.
std::vector<MemoryMoment> attention_moments(const BlockSpec& block, const Recipe::Model& model, const Elements& e,
                                            int64_t seq_len, const ContextNumbers& context) {
  const auto& h = e.hidden;
  const double saved = block.saved.compute_elements_per_token;
  const int64_t out = elements_of(block.parameters, {".out.weight", ".out.bias"});
  const int64_t qkv = elements_of(block.parameters, {".qkv.weight", ".qkv.bias"});
  const double beside = 2 * h.stream + h.all;  // input, residual's gradient, normed input
  auto attention = model.dropout > 0 ? dropout_attention_moment(e.heads, seq_len, beside + 9 * e.q)
                                     : MemoryMoment{.compute_elements_per_token = beside + 8 * e.q};
  if (context.keys_travel()) attention = context.backward(beside);
  attention.arrived = out;
  auto exchange = context.backward_exchange(beside);  // only with ulysses
  exchange.arrived = out;
  std::vector<MemoryMoment> moments = {
      {.compute_elements_per_token = saved + h.stream + e.last_gradient() + e.q,
       .arriving = out,
       .released_per_token = e.last_gradient(),
       .out_features = model.dim,
       .in_features = e.columns},
      attention,
      {.compute_elements_per_token = beside + 3 * e.q + h.all,
       .arrived = out,
       .arriving = qkv,
       .released_per_token = h.all,
       .out_features = 3 * e.columns,
       .in_features = model.dim},
      {.compute_elements_per_token = 4 * h.stream, .arrived = block.parameter_count()}};
  if (context.of_heads() > 0) moments.insert(moments.begin() + 2, exchange);
  return moments;
}

/// Input and its norm, queries, keys and values, and the result exist until the end.
std::vector<MemoryMoment> attention_without_graph(const Recipe::Model& model, const Elements& e, int64_t seq_len,
                                                  bool packed, const TensorDivision& division,
                                                  const ContextNumbers& context) {
  const double x = e.hidden.stream + e.hidden.all, qkv = 3 * e.q;
  MomentsWithoutGraph moments(model, seq_len, division);
  moments.add_product(x, 3 * e.columns, model.dim);
  if (context.keys_travel()) {
    moments.add(context.forward(x));
  } else {
    const double beside = x + qkv + context.of_heads();
    if (context.of_heads() > 0) moments.add(context.forward_exchanges(x));
    moments.add_fused_attention(beside, e.q, packed);
    moments.add_dropout_attention(beside, e.q, /*repeats=*/false);
  }
  moments.add_product(x + qkv + e.q, model.dim, e.columns);
  moments.add_leave(x + qkv + e.q, e.hidden.all);
  moments.add_dropout(x + qkv + e.q + e.hidden.stream, e.hidden.stream);
  return moments.list;
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len, bool packed,
                          const TensorDivision& division, const ContextDivision& context) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim;
  block.parameters = norm_parameters(model, layer + ".attention_norm");
  const int64_t head = dim / model.n_heads;
  add_linear(block, model, layer + ".attention.qkv", 3 * dim, dim, model.init_std,
             {.dim = 0, .parts = {dim, dim, dim}, .unit = head});
  add_linear(block, model, layer + ".attention.out", dim, dim, residual_std(model), {.dim = 1, .unit = head});
  divide_all(block, division);

  const Elements e(model, division);
  const auto& h = e.hidden;
  block.forward_flops_per_token =
      matrix_flops_per_token(block.parameters) + attention_flops_per_token(e.columns, seq_len);
  // Block input, normed input, q k v, attention output.
  block.saved.compute_elements_per_token = h.stream + h.all + 4 * e.q;
  // Mean and reciprocal deviation of the norm, and attention's log-sum-exp, which attention with dropout does not save.
  block.saved.float32_per_token = division.of_rows(2) + (model.dropout > 0 ? 0.0 : static_cast<double>(e.heads));
  block.inputs = {{.matrices = {layer + ".attention.qkv.weight"}, .elements_per_token = h.all}};
  block.output_elements_per_token = h.stream;
  const ContextNumbers numbers(
      {.heads = e.heads, .key_heads = e.heads, .head_dim = head, .seq_len = seq_len, .drops = model.dropout > 0},
      context);
  numbers.change(block);
  block.backward_moments = attention_moments(block, model, e, seq_len, numbers);
  block.moments_without_graph = attention_without_graph(model, e, seq_len, packed, division, numbers);
  add_enter(block, h.all, division);
  add_leave(block, {.elements_per_token = h.all, .of_output = true}, division);
  return block;
}

/// Moments of high memory use in backward, in order: second projection, GELU, first projection, norm.
std::vector<MemoryMoment> mlp_moments(const BlockSpec& block, const Recipe::Model& model, const Elements& e) {
  const auto& h = e.hidden;
  const double saved = block.saved.compute_elements_per_token;
  const int64_t down = elements_of(block.parameters, {".down.weight", ".down.bias"});
  const int64_t up = elements_of(block.parameters, {".up.weight", ".up.bias"});
  return {{.compute_elements_per_token = saved + h.stream + e.last_gradient() + e.mlp,
           .arriving = down,
           .released_per_token = e.mlp + e.last_gradient(),
           .out_features = model.dim,
           .in_features = e.mlp_columns},
          {.compute_elements_per_token = saved + h.stream + e.mlp, .arrived = down},
          {.compute_elements_per_token = saved - e.mlp + h.stream + h.all,
           .arrived = down,
           .arriving = up,
           .released_per_token = h.all + e.mlp,
           .out_features = e.mlp_columns,
           .in_features = model.dim},
          {.compute_elements_per_token = 4 * h.stream, .arrived = block.parameter_count()}};
}

/// The input's norm and GELU's input are freed before the second projection.
std::vector<MemoryMoment> mlp_without_graph(const Recipe::Model& model, const Elements& e,
                                            const TensorDivision& division) {
  const auto& h = e.hidden;
  MomentsWithoutGraph moments(model, /*seq_len=*/0, division);
  moments.add_product(h.stream + h.all, e.mlp_columns, model.dim);
  moments.add(h.stream + h.all + 2 * e.mlp);
  moments.add_product(h.stream + e.mlp, model.dim, e.mlp_columns);
  moments.add_leave(h.stream + e.mlp, h.all);
  moments.add_dropout(2 * h.stream + e.mlp, h.stream);
  return moments.list;
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
  const Elements e(model, division);
  const auto& h = e.hidden;
  // Block input, its norm, and GELU's input and output.
  block.saved.compute_elements_per_token = h.stream + h.all + 2 * e.mlp;
  block.saved.float32_per_token = division.of_rows(2);  // mean and reciprocal deviation of the norm
  block.inputs = {{.matrices = {layer + ".mlp.up.weight"}, .elements_per_token = h.all},
                  {.matrices = {layer + ".mlp.down.weight"}, .elements_per_token = e.mlp}};
  block.output_elements_per_token = h.stream;
  block.backward_moments = mlp_moments(block, model, e);
  block.moments_without_graph = mlp_without_graph(model, e, division);
  add_enter(block, h.all, division);
  add_leave(block, {.elements_per_token = h.all, .of_output = true}, division);
  return block;
}

int64_t hidden_dim(const Recipe::Model& model) { return model.hidden_dim.value_or(4 * model.dim); }

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context) {
  check_gpt(model);
  ModelSpec spec;
  const bool packed = rows != RowKind::one_sequence;
  spec.batch = rows == RowKind::packed ? packed_fields(seq_len) : token_fields(seq_len);
  spec.blocks.push_back(embedding_block(
      model,
      {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std, TensorSplit{}),
       matrix_parameter("embedding.positions.weight", model.max_seq_len, model.dim, model.init_std)},
      division,
      /*lookups=*/packed || context.divides() ? 2 : 1));
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer, seq_len, packed, division, context));
    spec.blocks.push_back(mlp_block(model, layer, division));
  }
  auto norm = norm_parameters(model, "head.norm");
  spec.blocks.push_back(labels_texts(model)
                            ? text_label_head_block(model, std::move(norm), seq_len)
                            : head_block(model, std::move(norm), vocab_size, {.saved_float32 = 2}, division));
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
