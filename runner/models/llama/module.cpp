#include "runner/models/llama/module.hpp"

#include <fmt/format.h>

#include "runner/models/attention.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/head.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/llama/llama.hpp"
#include "runner/models/llama/rope.hpp"

namespace runner::llama {

using torch::Tensor;

namespace {

class LlamaEmbedding : public Block {
 public:
  LlamaEmbedding(const Model& model, const Recipe::Model& recipe)
      : tokens_(model, "embedding.tokens.weight"),
        inputs_(model.spec.batch_field(token_field::inputs_name)),
        dropout_(recipe.dropout, 0) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    return dropout_(at::embedding(tokens, context.batch->fields[inputs_]), context, DropoutSite::embedding)
        .to(compute.dtype);
  }

 private:
  Parameter tokens_;
  size_t inputs_;
  Dropout dropout_;
};

/// Attention with its norm and its residual.
class LlamaAttention : public Block {
 public:
  LlamaAttention(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index,
                 std::shared_ptr<RotaryTable> rotary)
      : norm_(model, layer + ".attention_norm", recipe.norm_eps),
        wq_(model, layer + ".attention.wq"),
        wk_(model, layer + ".attention.wk"),
        wv_(model, layer + ".attention.wv"),
        wo_(model, layer + ".attention.wo"),
        rotary_(std::move(rotary)),
        dropout_(recipe.dropout, index),
        head_dim_(recipe.dim / recipe.n_heads) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    return attention(norm_(x), input.sizes(), context).add_(x).view(input.sizes());
  }

 private:
  Tensor attention(const Tensor& x, at::IntArrayRef sizes, const ForwardContext& context) {
    auto heads = [&](const Tensor& projected) {
      return projected.view({sizes[0], sizes[1], projected.size(-1) / head_dim_, head_dim_});
    };
    auto table = rotary_->first(sizes[1], x.device(), x.scalar_type());
    auto q = rotate(heads(wq_(x)), table), k = rotate(heads(wk_(x)), table);
    return dropout_(wo_.last(causal_attention(q, k, heads(wv_(x)), dropout_, context), context), context,
                    DropoutSite::attention_out);
  }

  RmsNorm norm_;
  Linear wq_, wk_, wv_, wo_;
  std::shared_ptr<RotaryTable> rotary_;
  Dropout dropout_;
  int64_t head_dim_;
};

/// The feed-forward with its norm and its residual.
class LlamaMlp : public Block {
 public:
  LlamaMlp(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : norm_(model, layer + ".mlp_norm", recipe.norm_eps),
        w1_(model, layer + ".mlp.w1"),
        w3_(model, layer + ".mlp.w3"),
        w2_(model, layer + ".mlp.w2"),
        dropout_(recipe.dropout, index) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    return mlp(norm_(x), context).add_(x).view(input.sizes());
  }

 private:
  Tensor mlp(const Tensor& x, const ForwardContext& context) {
    // Separate variables fix the order of evaluation. Backward then computes gradients in the reverse order of parameters,
    // as the prediction of memory assumes.
    auto gate = w1_(x), up = w3_(x);
    return dropout_(w2_.last(swiglu(gate, up), context), context, DropoutSite::mlp_out);
  }

  RmsNorm norm_;
  Linear w1_, w3_, w2_;
  Dropout dropout_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  auto rotary = std::make_shared<RotaryTable>(rope_frequencies(recipe), recipe.max_seq_len);
  model.blocks.push_back(std::make_unique<LlamaEmbedding>(model, recipe));
  for (int64_t i = 0; i < recipe.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    const auto index = static_cast<uint64_t>(i) + 1;  // the embedding's is 0
    model.blocks.push_back(std::make_unique<LlamaAttention>(model, recipe, layer, index, rotary));
    model.blocks.push_back(std::make_unique<LlamaMlp>(model, recipe, layer, index));
  }
  model.blocks.push_back(std::make_unique<Head<RmsNorm>>(model, recipe));
}

}  // namespace runner::llama
