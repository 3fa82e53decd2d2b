#include "runner/models/gpt/module.hpp"

#include "runner/models/attention.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/gelu.hpp"
#include "runner/models/head.hpp"
#include "runner/models/layers.hpp"

namespace runner::gpt {

using torch::Tensor;

namespace {

class GptEmbedding : public Block {
 public:
  GptEmbedding(const Model& model, const Recipe::Model& recipe)
      : tokens_(model, "embedding.tokens.weight"),
        positions_(model, "embedding.positions.weight"),
        dropout_(recipe.dropout, 0) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    const Tensor& ids = context.batch->inputs;
    auto x = at::embedding(tokens, ids).add_(positions_.get().narrow(0, 0, ids.size(1)));
    return dropout_(x, context, DropoutSite::embedding).to(compute.dtype);
  }

 private:
  Parameter tokens_, positions_;
  Dropout dropout_;
};

class GptTransformer : public Block {
 public:
  GptTransformer(const Model& model, const Recipe::Model& recipe, const std::string& name, uint64_t index)
      : attention_norm_(model, name + ".attention_norm", recipe.norm_eps),
        qkv_(model, name + ".attention.qkv"),
        out_(model, name + ".attention.out"),
        mlp_norm_(model, name + ".mlp_norm", recipe.norm_eps),
        up_(model, name + ".mlp.up"),
        down_(model, name + ".mlp.down"),
        dropout_(recipe.dropout, index),
        heads_(recipe.n_heads),
        gelu_(recipe.activation == "gelu_tanh" ? Gelu::tanh : Gelu::exact) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    int64_t dim = input.size(-1);
    // x has rows [N, dim], so the output of a product is not a view, and the residual can be added to it in place.
    auto x = input.reshape({-1, dim}).to(compute.dtype);
    x = attention(attention_norm_(x), input.sizes(), context).add_(x);
    auto mlp = down_(gelu(up_(mlp_norm_(x)), gelu_));
    return dropout_(mlp, context, DropoutSite::mlp_out).add_(x).view(input.sizes());
  }

 private:
  Tensor attention(const Tensor& x, at::IntArrayRef sizes, const ForwardContext& context) {
    int64_t dim = sizes[2];
    // Splits along the last dim, so that backward writes the three gradients into one tensor in one pass.
    auto parts = qkv_(x).view({sizes[0], sizes[1], 3 * dim}).split(dim, -1);
    for (auto& part : parts) part = part.unflatten(-1, {heads_, dim / heads_});
    return dropout_(out_(causal_attention(parts[0], parts[1], parts[2], dropout_, context)), context,
                    DropoutSite::attention_out);
  }

  LayerNorm attention_norm_;
  Linear qkv_, out_;
  LayerNorm mlp_norm_;
  Linear up_, down_;
  Dropout dropout_;
  int64_t heads_;
  Gelu gelu_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  for (const auto& block : model.spec.blocks) {
    if (block.kind == BlockKind::embedding)
      model.blocks.push_back(std::make_unique<GptEmbedding>(model, recipe));
    else if (block.kind == BlockKind::head)
      model.blocks.push_back(std::make_unique<Head<LayerNorm>>(model, recipe));
    else
      model.blocks.push_back(std::make_unique<GptTransformer>(model, recipe, block.name, model.blocks.size()));
  }
}

}  // namespace runner::gpt
