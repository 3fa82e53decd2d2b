#include "runner/models/module.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/gelu.hpp"
#include "runner/models/head.hpp"
#include "runner/models/key_value_cache.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/stream.hpp"
#include "runner/models/vocabulary.hpp"

namespace runner::gpt {

using torch::Tensor;

namespace {

class GptEmbedding : public Block {
 public:
  GptEmbedding(const Model& model, const Recipe::Model& recipe)
      : tokens_(model, "embedding.tokens.weight"),
        positions_(model, "embedding.positions.weight"),
        vocabulary_(model.spec.vocab_size),
        inputs_(model.spec.batch_field(token_field::inputs_name)),
        places_(model.spec),
        dropout_(recipe.dropout, 0) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    const Tensor& ids = context.batch->fields[inputs_];
    const auto places = context.cache ? context.cache->positions() : places_.of(*context.batch);
    const auto x = embedded(tokens, ids, {.tokens = vocabulary_, .axis = context.tensor_axis})
                       .add_(position_rows(places, ids, context.tensor_axis));
    return as_output(dropout_(x, context, DropoutSite::embedding).to(compute.dtype), ids, context.tensor_axis);
  }

 private:
  /// [T, dim] or [B, T, dim]; of several ranks this rank's rows of the stream.
  Tensor position_rows(const TokenPositions& places, const Tensor& ids, const TensorAxis* axis) const {
    const auto table = positions_.get();
    if (!axis) return places.packed() ? at::embedding(table, places.on_device) : table.narrow(0, 0, ids.size(1));
    if (places.packed()) return at::embedding(table, axis->own_rows(places.on_device.reshape({-1, 1})).squeeze(1));
    const int64_t first = axis->first_row(ids.numel()), count = axis->stream_rows(ids.numel());
    return at::embedding(table, at::arange(first, first + count, ids.options()).remainder_(ids.size(1)));
  }

  Parameter tokens_, positions_;
  int64_t vocabulary_;
  size_t inputs_;
  PositionsField places_;
  Dropout dropout_;
};

/// Attention with its norm and its residual. x has rows of the stream, so the output of a product is not a view, and the residual can be
/// added to it in place.
class GptAttention : public Block {
 public:
  GptAttention(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : norm_(model, layer + ".attention_norm", recipe.norm_eps),
        qkv_(model, layer + ".attention.qkv"),
        out_(model, layer + ".attention.out"),
        positions_(model.spec),
        dropout_(recipe.dropout, index),
        layer_(static_cast<int64_t>(index) - 1),
        head_dim_(recipe.dim / recipe.n_heads) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const Stream stream(input, context);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    return attention(stream.enter(norm_(x)), stream, context).add_(x).view(input.sizes());
  }

 private:
  Tensor attention(const Tensor& x, const Stream& stream, const ForwardContext& context) {
    const auto projected = qkv_(x, context);
    const int64_t columns = projected.size(1) / 3;
    // Splits along the last dim, so that backward writes the three gradients into one tensor in one pass.
    auto parts = projected.view({stream.batch(), stream.seq_len(), 3 * columns}).split(columns, -1);
    for (auto& part : parts) part = part.unflatten(-1, {columns / head_dim_, head_dim_});
    const auto result = context.cache ? cached_attention(parts[0], parts[1], parts[2], *context.cache, layer_, {})
                                      : causal_attention(parts[0], parts[1], parts[2], dropout_, context, {},
                                                         positions_.of(*context.batch));
    return dropout_(out_.last(result, context), context, DropoutSite::attention_out);
  }

  LayerNorm norm_;
  Linear qkv_, out_;
  PositionsField positions_;
  Dropout dropout_;
  int64_t layer_, head_dim_;
};

/// The feed-forward with its norm and its residual.
class GptMlp : public Block {
 public:
  GptMlp(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : norm_(model, layer + ".mlp_norm", recipe.norm_eps),
        up_(model, layer + ".mlp.up"),
        down_(model, layer + ".mlp.down"),
        dropout_(recipe.dropout, index),
        gelu_(activation_of(recipe) == "gelu_tanh" ? Gelu::tanh : Gelu::exact) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const Stream stream(input, context);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    // A statement of its own: without a graph, its operands are freed.
    const auto hidden = gelu(up_(stream.enter(norm_(x)), context), gelu_);
    auto mlp = down_.last(hidden, context);
    return dropout_(mlp, context, DropoutSite::mlp_out).add_(x).view(input.sizes());
  }

 private:
  LayerNorm norm_;
  Linear up_, down_;
  Dropout dropout_;
  Gelu gelu_;
};

}  // namespace

std::unique_ptr<Block> make_mlp(const Model& model, const Recipe::Model& recipe, const std::string& layer,
                                uint64_t index) {
  return std::make_unique<GptMlp>(model, recipe, layer, index);
}

void add_blocks(Model& model, const Recipe::Model& recipe) {
  model.blocks.push_back(std::make_unique<GptEmbedding>(model, recipe));
  for (int64_t i = 0; i < recipe.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    const auto index = static_cast<uint64_t>(i) + 1;  // the embedding's is 0
    model.blocks.push_back(std::make_unique<GptAttention>(model, recipe, layer, index));
    model.blocks.push_back(std::make_unique<GptMlp>(model, recipe, layer, index));
  }
  LayerNorm norm(model, "head.norm", recipe.norm_eps);
  if (model.spec.task)
    model.blocks.push_back(std::make_unique<TextLabelHead<LayerNorm>>(model, std::move(norm)));
  else
    model.blocks.push_back(std::make_unique<Head<LayerNorm>>(model, recipe, std::move(norm)));
}

}  // namespace runner::gpt
