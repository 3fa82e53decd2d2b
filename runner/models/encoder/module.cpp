#include "runner/models/module.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/cross_entropy.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/gelu.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/task_head.hpp"
#include "runner/models/token_loss.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::encoder {

using torch::Tensor;

namespace {

Gelu gelu_form(const Recipe::Model& recipe) { return activation_of(recipe) == "gelu_tanh" ? Gelu::tanh : Gelu::exact; }

/// Sum of token, position and type. Without a field of types, all tokens have type 0.
class EncoderEmbedding : public Block {
 public:
  EncoderEmbedding(const Model& model, const Recipe::Model& recipe)
      : tokens_(model, "embedding.tokens.weight"),
        positions_(model, "embedding.positions.weight"),
        types_(model, "embedding.types.weight"),
        inputs_(model.spec.batch_field(token_field::inputs_name)),
        places_(model.spec),
        offset_(recipe.position_offset) {
    for (size_t i = 0; i < model.spec.batch.size(); ++i)
      if (model.spec.batch[i].name == token_field::types_name) types_field_ = i;
  }

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    const Tensor& ids = context.batch->fields[inputs_];
    const auto places = places_.of(*context.batch);
    auto x = at::embedding(tokens, ids)
                 .add_(places.packed() ? at::embedding(positions_.get(), places.on_device + offset_)
                                       : positions_.get().narrow(0, offset_, ids.size(1)));
    x.add_(types_field_ ? at::embedding(types_.get(), context.batch->fields[*types_field_])
                        : types_.get().narrow(0, 0, 1));
    return x.to(compute.dtype);
  }

 private:
  Parameter tokens_, positions_, types_;
  size_t inputs_;
  PositionsField places_;
  std::optional<size_t> types_field_ = {};
  int64_t offset_;
};

/// Attention, its residual and then its norm. The first one begins with the norm and the dropout of the embedding.
class EncoderAttention : public Block {
 public:
  EncoderAttention(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : wq_(model, layer + ".attention.wq"),
        wk_(model, layer + ".attention.wk"),
        wv_(model, layer + ".attention.wv"),
        wo_(model, layer + ".attention.wo"),
        norm_(model, layer + ".attention_norm", recipe.norm_eps),
        positions_(model.spec),
        dropout_(recipe.dropout, index),
        heads_(recipe.n_heads) {
    if (index > 1) return;
    first_norm_.emplace(model, "embedding.norm", recipe.norm_eps);
    first_dropout_.emplace(recipe.dropout, 0);
  }

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    if (first_norm_)
      x = (*first_dropout_)((*first_norm_)(x).view(input.sizes()), context, DropoutSite::embedding).flatten(0, 1);
    const auto of_heads = [&](const Linear& linear) {
      return linear(x, context).view({input.size(0), input.size(1), heads_, input.size(2) / heads_});
    };
    const auto result = bidirectional_attention(of_heads(wq_), of_heads(wk_), of_heads(wv_), dropout_, context,
                                                positions_.of(*context.batch));
    const auto sum = dropout_(wo_(result, context), context, DropoutSite::attention_out).add_(x);
    return norm_(sum).view(input.sizes());
  }

 private:
  Linear wq_, wk_, wv_, wo_;
  LayerNorm norm_;
  PositionsField positions_;
  Dropout dropout_;
  int64_t heads_;
  std::optional<LayerNorm> first_norm_ = {};
  std::optional<Dropout> first_dropout_ = {};
};

/// The feed-forward, its residual and then its norm.
class EncoderMlp : public Block {
 public:
  EncoderMlp(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : up_(model, layer + ".mlp.up"),
        down_(model, layer + ".mlp.down"),
        norm_(model, layer + ".mlp_norm", recipe.norm_eps),
        dropout_(recipe.dropout, index),
        gelu_(gelu_form(recipe)) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    const auto hidden =
        gelu(up_(x, context), gelu_);  // a statement of its own: without a graph, its operands are freed
    const auto mlp = down_(hidden, context);
    const auto sum = dropout_(mlp, context, DropoutSite::mlp_out).add_(x);
    return norm_(sum).view(input.sizes());
  }

 private:
  Linear up_, down_;
  LayerNorm norm_;
  Dropout dropout_;
  Gelu gelu_;
};

/// Masked language modelling: a layer, its norm, the product with the table of tokens, and the loss of the targets.
class MaskedHead : public Block {
 public:
  MaskedHead(const Model& model, const Recipe::Model& recipe)
      : transform_(model, "head.transform"),
        norm_(model, "head.norm", recipe.norm_eps),
        weight_(model, "embedding.tokens.weight"),
        bias_(model, "head.bias"),
        targets_(model.spec.batch_field(token_field::targets_name)),
        chunk_tokens_(model.spec.loss_chunk_tokens),
        gelu_(gelu_form(recipe)) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto states = [&](const Tensor& x) { return norm_(gelu(transform_(x, context), gelu_)); };
    if (context.logits_of) {
      const auto last = states(input.select(1, *context.logits_of).contiguous().to(compute.dtype));
      return at::linear(last, weight_.as(compute.dtype), bias_.as(compute.dtype)).to(torch::kFloat32);
    }
    const auto hidden = states(input.reshape({-1, input.size(-1)}).to(compute.dtype));
    const auto targets = context.batch->fields[targets_].reshape(-1);
    if (context.token_loss)
      return chunked_token_loss(hidden, weight_.get(), targets, chunk_tokens_, *context.token_loss,
                                {.bias = bias_.get()});
    return chunked_cross_entropy(hidden, weight_.get(), targets, chunk_tokens_, {.bias = bias_.get()});
  }

 private:
  Linear transform_;
  LayerNorm norm_;
  Parameter weight_, bias_;
  size_t targets_;
  int64_t chunk_tokens_;
  Gelu gelu_;
};

/// Models of texts: of the first token a layer with tanh (BERT's pooler, or a part of RoBERTa's head), and the outputs.
class LabelHead : public TaskHead {
 public:
  LabelHead(const Model& model, const Recipe::Model& recipe)
      : TaskHead(model),
        dense_(model, "head.dense"),
        dropout_(recipe.dropout, static_cast<uint64_t>(recipe.n_layers) + 1),
        drops_input_(recipe.name == "roberta") {}

 protected:
  Tensor features(const Tensor& x, const ForwardContext& context) override {
    auto first = x.select(1, 0).contiguous();
    if (drops_input_) first = dropped(first, context, DropoutSite::head_in);
    return dropped(dense_(first, context).tanh(), context, DropoutSite::head_out);
  }

 private:
  /// tanh's backward needs its result, and autograd that of select().
  Tensor dropped(const Tensor& x, const ForwardContext& context, DropoutSite site) const {
    return dropout_.active(context) ? dropout_(x.clone(), context, site) : x;
  }

  Linear dense_;
  Dropout dropout_;
  bool drops_input_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  model.blocks.push_back(std::make_unique<EncoderEmbedding>(model, recipe));
  for (int64_t i = 0; i < recipe.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    const auto index = static_cast<uint64_t>(i) + 1;  // the embedding's is 0
    model.blocks.push_back(std::make_unique<EncoderAttention>(model, recipe, layer, index));
    model.blocks.push_back(std::make_unique<EncoderMlp>(model, recipe, layer, index));
  }
  if (model.spec.task)
    model.blocks.push_back(std::make_unique<LabelHead>(model, recipe));
  else
    model.blocks.push_back(std::make_unique<MaskedHead>(model, recipe));
}

}  // namespace runner::encoder
