#include "runner/models/module.hpp"

#include <fmt/format.h>

#include "runner/models/attention.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/row_input.hpp"
#include "runner/models/task_head.hpp"

namespace runner::vit {

using torch::Tensor;

namespace {

/// Patches, class token and positions: [B, 3, S, S] -> [B, T, dim].
class Embedding : public Block {
 public:
  Embedding(const Model& model, const Recipe::Model& recipe)
      : class_token_(model, "embedding.class_token"),
        positions_(model, "embedding.positions"),
        patches_(model, "embedding.patches.weight"),
        bias_(model, "embedding.patches.bias"),
        dropout_(recipe.dropout, 0),
        patch_(recipe.patch_size) {}

  Tensor forward(const Tensor& images, const ForwardContext& context) override {
    ComputeScope compute(images);
    const auto weight = patches_.as(compute.dtype);
    // The convolution's windows do not overlap, so it is a product with the patches as rows.
    const int64_t rows = images.size(0), across = images.size(2) / patch_;
    const auto patches = images.to(compute.dtype)
                             .view({rows, 3, across, patch_, across, patch_})
                             .permute({0, 2, 4, 1, 3, 5})
                             .reshape({rows, across * across, 3 * patch_ * patch_});
    const auto embedded = at::linear(patches, weight.reshape({weight.size(0), -1}), bias_.as(compute.dtype));
    const auto x =
        at::cat({class_token_.as(compute.dtype).expand({rows, 1, -1}), embedded}, 1) + positions_.as(compute.dtype);
    return dropout_(x, context, DropoutSite::embedding);
  }

 private:
  Parameter class_token_, positions_, patches_, bias_;
  Dropout dropout_;
  int64_t patch_;
};

/// Attention of all tokens to all, with its norm and its residual.
class Attention : public Block {
 public:
  Attention(const Model& model, const Recipe::Model& recipe, const std::string& layer, uint64_t index)
      : norm_(model, layer + ".attention_norm", recipe.norm_eps),
        query_(model, layer + ".attention.query"),
        key_(model, layer + ".attention.key"),
        value_(model, layer + ".attention.value"),
        out_(model, layer + ".attention.out"),
        dropout_(recipe.dropout, index),
        heads_(recipe.n_heads) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    const auto normed = norm_(x);
    const auto heads = [&](const Linear& linear) {
      return linear(normed, context).view({input.size(0), input.size(1), heads_, -1});
    };
    const auto attended =
        bidirectional_attention(heads(query_), heads(key_), heads(value_), no_dropout_, context, /*positions=*/{});
    return dropout_(out_.last(attended, context), context, DropoutSite::attention_out).add_(x).view(input.sizes());
  }

 private:
  LayerNorm norm_;
  Linear query_, key_, value_, out_;
  Dropout dropout_, no_dropout_{0, 0};
  int64_t heads_;
};

/// The class token, normed.
class VitHead : public TaskHead {
 public:
  VitHead(const Model& model, const Recipe::Model& recipe) : TaskHead(model), norm_(model, "norm", recipe.norm_eps) {}

 protected:
  Tensor features(const Tensor& x, const ForwardContext&) override { return norm_(x.select(1, 0).contiguous()); }

 private:
  LayerNorm norm_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  model.blocks.push_back(std::make_unique<RowInput>(model));
  model.blocks.push_back(std::make_unique<Embedding>(model, recipe));
  for (int64_t i = 0; i < recipe.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    const auto index = static_cast<uint64_t>(i) + 1;
    model.blocks.push_back(std::make_unique<Attention>(model, recipe, layer, index));
    model.blocks.push_back(gpt::make_mlp(model, recipe, layer, index));
  }
  model.blocks.push_back(std::make_unique<VitHead>(model, recipe));
}

}  // namespace runner::vit
