#include "runner/models/llama/module.hpp"

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
      : tokens_(model, "embedding.tokens.weight"), dropout_(recipe.dropout, 0) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    return dropout_(at::embedding(tokens, context.batch->inputs), context, DropoutSite::embedding).to(compute.dtype);
  }

 private:
  Parameter tokens_;
  Dropout dropout_;
};

class LlamaTransformer : public Block {
 public:
  LlamaTransformer(const Model& model, const Recipe::Model& recipe, const std::string& name, uint64_t index,
                   std::shared_ptr<RotaryTable> rotary)
      : attention_norm_(model, name + ".attention_norm", recipe.norm_eps),
        wq_(model, name + ".attention.wq"),
        wk_(model, name + ".attention.wk"),
        wv_(model, name + ".attention.wv"),
        wo_(model, name + ".attention.wo"),
        mlp_norm_(model, name + ".mlp_norm", recipe.norm_eps),
        w1_(model, name + ".mlp.w1"),
        w3_(model, name + ".mlp.w3"),
        w2_(model, name + ".mlp.w2"),
        rotary_(std::move(rotary)),
        dropout_(recipe.dropout, index),
        head_dim_(recipe.dim / recipe.n_heads) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    x = attention(attention_norm_(x), input.sizes(), context).add_(x);
    return mlp(mlp_norm_(x), context).add_(x).view(input.sizes());
  }

 private:
  Tensor attention(const Tensor& x, at::IntArrayRef sizes, const ForwardContext& context) {
    auto heads = [&](const Tensor& projected) {
      return projected.view({sizes[0], sizes[1], projected.size(-1) / head_dim_, head_dim_});
    };
    auto table = rotary_->first(sizes[1], x.device(), x.scalar_type());
    auto q = rotate(heads(wq_(x)), table), k = rotate(heads(wk_(x)), table);
    return dropout_(wo_(causal_attention(q, k, heads(wv_(x)), dropout_, context)), context, DropoutSite::attention_out);
  }

  Tensor mlp(const Tensor& x, const ForwardContext& context) {
    // Separate variables fix the order of evaluation. Backward then computes gradients in the reverse order of parameters,
    // as the prediction of memory assumes.
    auto gate = w1_(x), up = w3_(x);
    return dropout_(w2_(swiglu(gate, up)), context, DropoutSite::mlp_out);
  }

  RmsNorm attention_norm_;
  Linear wq_, wk_, wv_, wo_;
  RmsNorm mlp_norm_;
  Linear w1_, w3_, w2_;
  std::shared_ptr<RotaryTable> rotary_;
  Dropout dropout_;
  int64_t head_dim_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  auto rotary = std::make_shared<RotaryTable>(rope_frequencies(recipe), recipe.max_seq_len);
  for (const auto& block : model.spec.blocks) {
    if (block.kind == BlockKind::embedding)
      model.blocks.push_back(std::make_unique<LlamaEmbedding>(model, recipe));
    else if (block.kind == BlockKind::head)
      model.blocks.push_back(std::make_unique<Head<RmsNorm>>(model, recipe));
    else
      model.blocks.push_back(
          std::make_unique<LlamaTransformer>(model, recipe, block.name, model.blocks.size(), rotary));
  }
}

}  // namespace runner::llama
