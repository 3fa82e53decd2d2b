// The blocks of a decoder: parameters, FLOPs and collectives.
#include <algorithm>

#include "runner/config/model_families.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/family.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::decoder {

namespace {

/// Builds the blocks of one model.
class Blocks {
 public:
  Blocks(const Recipe::Model& model, int64_t seq_len, const TensorDivision& division, const ContextDivision& context)
      : model_(model),
        division_(division),
        context_(context),
        decoder_(decoder_of(model)),
        hidden_(decoder_.dim, division),
        seq_len_(seq_len) {}

  BlockSpec attention(const std::string& layer, int64_t number) const {
    BlockSpec block{.name = layer + ".attention", .layer = layer, .variant = variant(number)};
    add_attention(block, layer, number);
    return block;
  }

  BlockSpec mlp(const std::string& layer) const {
    BlockSpec block{.name = layer + ".mlp", .layer = layer};
    add_mlp(block, layer);
    return block;
  }

  /// A layer whose two branches read the same input.
  BlockSpec parallel(const std::string& layer, int64_t number) const {
    const auto first = attention(layer, number), second = mlp(layer);
    BlockSpec block{.name = layer, .layer = layer, .variant = variant(number)};
    block.parameters = first.parameters;
    block.parameters.insert(block.parameters.end(), second.parameters.begin(), second.parameters.end());
    block.forward_flops_per_token = first.forward_flops_per_token + second.forward_flops_per_token;
    block.output_elements_per_token = hidden_.stream;
    add_parallel_traffic(block);
    block.over_context_axis = first.over_context_axis;
    return block;
  }

  std::vector<ParameterSpec> norm(const std::string& name, int64_t size, bool layer_norm) const {
    const auto ones = model_.norm_offset ? Init::Kind::zeros : Init::Kind::ones;
    std::vector<ParameterSpec> parameters = {vector_parameter(name + ".weight", size, ones)};
    if (layer_norm) parameters.push_back(vector_parameter(name + ".bias", size, Init::Kind::zeros));
    return parameters;
  }
  bool layer_norm() const { return decoder_.norm == Decoder::Norm::layer; }

 private:
  /// BlockSpec::variant: layers differ in their window, and in whether they have rotary positions.
  int64_t variant(int64_t number) const {
    return 2 * attention_form(model_, number).window + (rotates(model_, number) ? 1 : 0);
  }

  /// Adds the traffic of a layer whose branches read one entered input. With dropout there is a sum over the ranks for each branch.
  void add_parallel_traffic(BlockSpec& block) const {
    add_enter(block, hidden_.all, division_);
    add_norm_sums(block);
    const BlockCollective leave{.elements_per_token = hidden_.all, .of_output = true};
    add_leave(block, leave, division_);
    if (model_.dropout > 0) add_leave(block, leave, division_);
  }

  /// The norms of parallel branches are of all rows on each rank.
  void add_norm(BlockSpec& block, const std::string& name) const {
    for (auto& parameter : norm(name, decoder_.dim, layer_norm())) {
      if (decoder_.parallel) parameter.whole_use = WholeUse::columns;
      add(block, std::move(parameter));
    }
  }
  void add(BlockSpec& block, ParameterSpec parameter) const {
    divide(parameter, division_);
    block.parameters.push_back(std::move(parameter));
  }
  /// The bias of a row-parallel layer is added to the sum over the ranks.
  void add_linear(BlockSpec& block, const std::string& name, int64_t out, int64_t in, double std,
                  const TensorSplit& split, bool bias) const {
    add(block, matrix_parameter(name + ".weight", out, in, std, split));
    const auto of_bias = split.dim == 0 ? std::optional(split) : std::nullopt;
    if (bias) add(block, vector_parameter(name + ".bias", out, Init::Kind::zeros, of_bias));
  }
  void add_qk_norm(BlockSpec& block, const std::string& name, int64_t heads) const {
    if (decoder_.qk_norm == Decoder::QkNorm::none) return;
    const bool per_head = decoder_.qk_norm == Decoder::QkNorm::head;
    auto weight = norm(name, per_head ? decoder_.head_dim : heads * decoder_.head_dim, false)[0];
    weight.whole_use = WholeUse::columns;
    if (!per_head) weight.split = TensorSplit{.dim = 0, .unit = decoder_.head_dim};
    add(block, std::move(weight));
  }

  /// Adds the sum of the last product. A norm after it needs its values.
  void add_last_sum(BlockSpec& block) const {
    add_leave(block, {.elements_per_token = hidden_.all, .of_output = !decoder_.norm_after}, division_);
  }
  /// The sums of squares of the queries and of the keys over all heads.
  void add_norm_sums(BlockSpec& block) const {
    if (!division_.divides() || decoder_.qk_norm != Decoder::QkNorm::full) return;
    const BlockCollective sums{.kind = Collective::all_gather,
                               .elements_per_token = static_cast<double>(division_.ranks),
                               .values = BlockCollective::Values::statistics};
    auto& [forward, backward] = block.over_tensor_axis;
    forward.insert(forward.end(), 2, sums);
    backward.insert(backward.begin(), 2, sums);
  }

  void add_attention(BlockSpec& block, const std::string& layer, int64_t number) const {
    const auto& d = decoder_;
    const int64_t q = d.query_dim(), kv = d.key_dim();
    if (d.norm_before) add_norm(block, layer + ".attention_norm");
    const TensorSplit columns{.dim = 0, .unit = d.head_dim};
    add_linear(block, layer + ".attention.wq", q, d.dim, model_.init_std, columns, d.biases.qkv);
    add_qk_norm(block, layer + ".attention.q_norm", d.n_heads);
    add_linear(block, layer + ".attention.wk", kv, d.dim, model_.init_std, columns, d.biases.qkv);
    add_qk_norm(block, layer + ".attention.k_norm", d.kv_heads);
    add_linear(block, layer + ".attention.wv", kv, d.dim, model_.init_std, columns, d.biases.qkv);
    add_linear(block, layer + ".attention.wo", d.dim, q, residual_std(model_), {.dim = 1, .unit = d.head_dim},
               d.biases.out);
    if (d.norm_after) add_norm(block, layer + ".attention_post_norm");

    const auto part = d.divided(division_);
    const int64_t window = attention_form(model_, number).window,
                  seen = window > 0 ? std::min(window, seq_len_) : seq_len_;
    block.forward_flops_per_token =
        matrix_flops_per_token(block.parameters) + attention_flops_per_token(part.query_dim(), seen);
    block.output_elements_per_token = hidden_.stream;
    add_enter(block, hidden_.all, division_);
    add_norm_sums(block);
    add_last_sum(block);
    add_context_traffic(block, {.heads = part.n_heads, .key_heads = part.kv_heads, .head_dim = d.head_dim}, context_);
  }

  void add_mlp(BlockSpec& block, const std::string& layer) const {
    const auto& d = decoder_;
    if (d.norm_before) add_norm(block, layer + ".mlp_norm");
    add_linear(block, layer + ".mlp.w1", d.hidden, d.dim, model_.init_std, {.dim = 0}, d.biases.mlp);
    if (d.gated) add_linear(block, layer + ".mlp.w3", d.hidden, d.dim, model_.init_std, {.dim = 0}, d.biases.mlp);
    add_linear(block, layer + ".mlp.w2", d.dim, d.hidden, residual_std(model_), {.dim = 1}, d.biases.mlp);
    if (d.norm_after) add_norm(block, layer + ".mlp_post_norm");
    block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
    block.output_elements_per_token = hidden_.stream;
    add_enter(block, hidden_.all, division_);
    add_last_sum(block);
  }

  const Recipe::Model& model_;
  const TensorDivision& division_;
  const ContextDivision& context_;
  Decoder decoder_;
  HiddenElements hidden_;
  int64_t seq_len_;
};

/// Tables of cos and sin that the layers use.
int64_t rotary_tables(const Recipe::Model& model) {
  bool used[2] = {};  // of layers with all keys, and with a window
  for (int64_t i = 0; i < model.n_layers; ++i)
    if (rotates(model, i)) used[model.rope_local_theta && slides(model, i)] = true;
  return used[0] + used[1];
}

}  // namespace

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context) {
  const Blocks blocks(model, seq_len, division, context);
  ModelSpec spec;
  spec.batch = rows == RowKind::packed ? packed_fields(seq_len) : token_fields(seq_len);
  spec.blocks.push_back(embedding_block(
      model, {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std, TensorSplit{})},
      division));
  spec.buffer_elements = rotary_tables(model) * model.max_seq_len * decoder_of(model).rotary_dim;
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    if (model.parallel_residual) {
      spec.blocks.push_back(blocks.parallel(layer, i));
      continue;
    }
    spec.blocks.push_back(blocks.attention(layer, i));
    spec.blocks.push_back(blocks.mlp(layer));
  }
  if (labels_texts(model)) {  // neither a soft cap nor a divisor of logits, as in transformers
    auto norm = blocks.norm("head.norm", model.dim, blocks.layer_norm());
    spec.blocks.push_back(text_label_head_block(model, std::move(norm), seq_len));
    return spec;
  }
  spec.blocks.push_back(
      head_block(model, blocks.norm("head.norm", model.dim, blocks.layer_norm()), vocab_size, division));
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  nlohmann::json scaling, local, scale;
  if (const auto& rope = model.rope_scaling) {
    scaling = {{"factor", rope->factor},
               {"low_freq_factor", rope->low_freq_factor},
               {"high_freq_factor", rope->high_freq_factor},
               {"original_max_position_embeddings", rope->original_max_position_embeddings}};
    if (rope->rope_type != "llama3") {
      scaling.update({{"rope_type", rope->rope_type}, {"beta_fast", rope->beta_fast}, {"beta_slow", rope->beta_slow}});
      if (rope->attention_factor) scaling["attention_factor"] = *rope->attention_factor;
      if (rope->rope_type == "longrope")
        scaling.update({{"short_factor", rope->short_factor},
                        {"long_factor", rope->long_factor},
                        {"max_seq_len", model.max_seq_len}});  // determines the factor of cos and sin
    }
  }
  if (model.rope_local_theta) local = *model.rope_local_theta;
  const double factor = attention_form(model, 0).scale_for(head_dim(model));
  if (factor != AttentionForm{}.scale_for(head_dim(model))) scale = factor;  // otherwise it follows from the heads
  std::vector<std::string> types;
  for (int64_t i = 0; i < model.n_layers; ++i)
    types.emplace_back(slides(model, i) ? "sliding_attention" : "full_attention");
  const bool windows = model.sliding_window > 0 || model.rope_local_theta;
  return {{"n_kv_heads", n_kv_heads(model)},
          {"head_dim", head_dim(model)},
          {"hidden_dim", hidden_dim(model)},
          {"activation", activation_of(model)},
          {"gated_mlp", model.gated_mlp},
          {"norm", model.norm},
          {"norm_place", model.norm_place},
          {"norm_offset", model.norm_offset},
          {"qk_norm", model.qk_norm},
          {"parallel_residual", model.parallel_residual},
          {"attention_bias", model.attention_bias},
          {"mlp_bias", model.mlp_bias},
          {"attention_scale", scale},
          {"attention_softcap", model.attention_softcap},
          {"logits_softcap", model.logits_softcap},
          {"sliding_window", model.sliding_window},
          {"layer_types", windows ? nlohmann::json(types) : nlohmann::json()},
          {"rope_theta", model.rope_theta},
          {"rope_local_theta", local},
          {"partial_rotary_factor", model.partial_rotary_factor},
          {"no_rope_every", model.no_rope_every},
          {"rope_scaling", scaling},
          {"embedding_multiplier", embedding_multiplier(model)},
          {"residual_multiplier", model.residual_multiplier},
          {"logits_scaling", model.logits_scaling}};
}

}  // namespace runner::decoder

namespace runner {

const Family decoder_family = {.make_spec = decoder::make_spec,
                               .settings = decoder::settings,
                               .hf_tensor = decoder::hf_tensor,
                               .hf_ignorable = decoder::hf_ignorable,
                               .model_from_hf_config = decoder::model_from_hf_config,
                               .hf_config = decoder::hf_config};

}  // namespace runner
