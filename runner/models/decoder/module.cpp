#include "runner/models/module.hpp"

#include <fmt/format.h>

#include <variant>

#include "runner/config/model_families.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/decoder/rotary.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/head.hpp"
#include "runner/models/key_value_cache.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/stream.hpp"
#include "runner/models/vocabulary.hpp"

namespace runner::decoder {

using torch::Tensor;

namespace {

StoredWeight stored_weight(const Recipe::Model& recipe) {
  return recipe.norm_offset ? StoredWeight::minus_one : StoredWeight::plain;
}

/// RMSNorm or LayerNorm, as model.norm says.
class Norm {
 public:
  Norm(const Model& model, const Recipe::Model& recipe, const std::string& name)
      : norm_(recipe.norm == "layer" ? Kind(LayerNorm(model, name, recipe.norm_eps))
                                     : Kind(RmsNorm(model, name, recipe.norm_eps, stored_weight(recipe)))) {}
  Tensor operator()(const Tensor& x) const {
    return std::visit([&](const auto& norm) { return norm(x); }, norm_);
  }

 private:
  using Kind = std::variant<RmsNorm, LayerNorm>;
  Kind norm_;
};

class Embedding : public Block {
 public:
  Embedding(const Model& model, const Recipe::Model& recipe)
      : tokens_(model, "embedding.tokens.weight"),
        vocabulary_(model.spec.vocab_size),
        inputs_(model.spec.batch_field(token_field::inputs_name)),
        multiplier_(embedding_multiplier(recipe)),
        dropout_(recipe.dropout, 0) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    auto tokens = tokens_.get();
    ComputeScope compute(tokens);
    const Tensor& ids = context.batch->fields[inputs_];
    auto x = embedded(tokens, ids, {.tokens = vocabulary_, .axis = context.tensor_axis});
    // Gemma rounds the factor to the dtype of the table. Whether the table is stored in that of the products depends on the strategy.
    if (multiplier_ != 1) x = x.to(compute.dtype).mul_(at::scalar_tensor(multiplier_, compute.dtype).item());
    return as_output(dropout_(x, context, DropoutSite::embedding).to(compute.dtype), ids, context.tensor_axis);
  }

 private:
  Parameter tokens_;
  int64_t vocabulary_;
  size_t inputs_;
  double multiplier_;
  Dropout dropout_;
};

/// The result of a branch of a layer: what it adds to the stream, or its last products on this rank (Linear::product()), which are added
/// to those of the other branch before the sum over the ranks.
enum class Returns { addend, products };

/// The operations of a branch of a layer before and after its products: norms, dropout and the residual multiplier.
class BranchEnds {
 public:
  BranchEnds(const Model& model, const Recipe::Model& recipe, const std::string& branch, DropoutSite site,
             uint64_t index)
      : dropout_(recipe.dropout, index), site_(site), multiplier_(recipe.residual_multiplier) {
    const auto decoder = decoder_of(recipe);
    if (decoder.norm_before) before_.emplace(model, recipe, branch + "_norm");
    if (decoder.norm_after) after_.emplace(model, recipe, branch + "_post_norm");
  }

  Tensor begin(const Tensor& x) const { return before_ ? (*before_)(x) : x; }
  /// `last`: the last product. Its values are needed for the backward of a norm after it.
  Tensor end(const Linear& last, const Tensor& x, const ForwardContext& context, Returns returns) const {
    if (returns == Returns::products) return last.product(x, context, context.output_unused);
    auto y = dropout_(after_ ? last(x, context) : last.last(x, context), context, site_);
    if (after_) y = (*after_)(y);
    return multiplied(y);
  }
  Tensor multiplied(Tensor y) const { return multiplier_ == 1 ? y : y.mul_(multiplier_); }
  const Dropout& dropout() const { return dropout_; }

 private:
  std::optional<Norm> before_, after_;
  Dropout dropout_;
  DropoutSite site_;
  double multiplier_;
};

/// Attention. Its input h are all rows of begin(the stream).
class AttentionBranch {
 public:
  AttentionBranch(const Model& model, const Recipe::Model& recipe, const std::string& layer, int64_t number,
                  std::shared_ptr<RotaryTable> rotary)
      : ends_(model, recipe, layer + ".attention", DropoutSite::attention_out, static_cast<uint64_t>(number) + 1),
        wq_(model, layer + ".attention.wq"),
        wk_(model, layer + ".attention.wk"),
        wv_(model, layer + ".attention.wv"),
        wo_(model, layer + ".attention.wo"),
        positions_(model.spec),
        rotary_(std::move(rotary)),
        form_(attention_form(recipe, number)),
        layer_(number),
        head_dim_(head_dim(recipe)),
        norm_of_heads_(recipe.qk_norm == "head") {
    if (recipe.qk_norm == "none") return;
    q_norm_.emplace(model, layer + ".attention.q_norm", recipe.norm_eps, stored_weight(recipe));
    k_norm_.emplace(model, layer + ".attention.k_norm", recipe.norm_eps, stored_weight(recipe));
  }

  const BranchEnds& ends() const { return ends_; }
  const Linear& last() const { return wo_; }

  Tensor operator()(const Tensor& h, const Stream& stream, const ForwardContext& context, Returns returns) const {
    const auto positions = context.cache ? context.cache->positions() : positions_.of(*context.batch);
    const int64_t end = context.cache          ? context.cache->positions_end()
                        : context.context_axis ? context.batch->row_tokens
                                               : stream.seq_len();
    // The products are computed one after another, so backward computes gradients in the reverse order of parameters, as the prediction
    // of memory assumes.
    const auto* axis = context.tensor_axis;
    auto q = positioned(normed(wq_(h, context), q_norm_, axis), stream, positions, end),
         k = positioned(normed(wk_(h, context), k_norm_, axis), stream, positions, end);
    const auto v = heads(wv_(h, context), stream);
    if (context.cache)
      return ends_.end(wo_, cached_attention(q, k, v, *context.cache, layer_, form_), context, returns);
    return ends_.end(wo_, causal_attention(q, k, v, ends_.dropout(), context, form_, positions), context, returns);
  }

 private:
  Tensor heads(const Tensor& projected, const Stream& stream) const {
    return projected.view({stream.batch(), stream.seq_len(), projected.size(-1) / head_dim_, head_dim_});
  }
  Tensor normed(const Tensor& projected, const std::optional<RmsNorm>& norm, const TensorAxis* axis) const {
    if (!norm) return projected;
    if (!norm_of_heads_) return (*norm)(projected, axis);
    return (*norm)(projected.view({-1, head_dim_})).view(projected.sizes());
  }
  /// `end`: greater than every position.
  Tensor positioned(const Tensor& projected, const Stream& stream, const TokenPositions& positions, int64_t end) const {
    auto x = heads(projected, stream);
    if (!rotary_) return x;
    return rotate(x, rotary_->first(end, x.device(), x.scalar_type()), positions.on_device);
  }

  BranchEnds ends_;
  Linear wq_, wk_, wv_, wo_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  PositionsField positions_;
  std::shared_ptr<RotaryTable> rotary_;  ///< null: no rotary positions
  AttentionForm form_;
  int64_t layer_, head_dim_;
  bool norm_of_heads_;
};

/// The feed-forward. Its input h are all rows of begin(the stream).
class MlpBranch {
 public:
  MlpBranch(const Model& model, const Recipe::Model& recipe, const std::string& layer, int64_t number)
      : ends_(model, recipe, layer + ".mlp", DropoutSite::mlp_out, static_cast<uint64_t>(number) + 1),
        w1_(model, layer + ".mlp.w1"),
        w2_(model, layer + ".mlp.w2"),
        activation_(activation_named(activation_of(recipe))) {
    if (recipe.gated_mlp) w3_.emplace(model, layer + ".mlp.w3");
  }

  const BranchEnds& ends() const { return ends_; }
  const Linear& last() const { return w2_; }

  Tensor operator()(const Tensor& h, const Stream&, const ForwardContext& context, Returns returns) const {
    return ends_.end(w2_, hidden(h, context), context, returns);
  }

 private:
  Tensor hidden(const Tensor& x, const ForwardContext& context) const {
    if (!w3_) return activated(w1_(x, context), activation_);
    auto gate = w1_(x, context), up = (*w3_)(x, context);  // in this order, see AttentionBranch
    return gated(gate, up, activation_);
  }

  BranchEnds ends_;
  Linear w1_, w2_;
  std::optional<Linear> w3_;
  Activation activation_;
};

/// x + branch(x).
template <class Branch>
class Residual : public Block {
 public:
  explicit Residual(Branch branch) : branch_(std::move(branch)) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const Stream stream(input, context);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype);
    return branch_(stream.enter(branch_.ends().begin(x)), stream, context, Returns::addend).add_(x).view(input.sizes());
  }

 private:
  Branch branch_;
};

/// x + attention(x) + feed-forward(x). Ranks that share the matrices gather x before its norms, so that both branches read the same rows,
/// and unless there is dropout between the products and their sum, they sum the products of both branches at once.
class ParallelResidual : public Block {
 public:
  ParallelResidual(AttentionBranch attention, MlpBranch mlp) : attention_(std::move(attention)), mlp_(std::move(mlp)) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const Stream stream(input, context);
    const auto x = input.reshape({-1, input.size(-1)}).to(compute.dtype), all = stream.enter(x);
    const auto& ends = attention_.ends();
    const bool at_once = context.tensor_axis && !ends.dropout().active(context);
    const auto returns = at_once ? Returns::products : Returns::addend;
    auto sum = attention_(ends.begin(all), stream, context, returns);
    sum.add_(mlp_(mlp_.ends().begin(all), stream, context, returns));
    if (at_once) sum = ends.multiplied(Linear::complete_sum(attention_.last(), mlp_.last(), sum, context));
    return sum.add_(x).view(input.sizes());
  }

 private:
  AttentionBranch attention_;
  MlpBranch mlp_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  auto rotary = std::make_shared<RotaryTable>(rope_frequencies(recipe), recipe.max_seq_len), local = rotary;
  if (recipe.rope_local_theta)
    local = std::make_shared<RotaryTable>(rope_frequencies(recipe, /*local=*/true), recipe.max_seq_len);
  model.blocks.push_back(std::make_unique<Embedding>(model, recipe));
  for (int64_t i = 0; i < recipe.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    const auto table = !rotates(recipe, i) ? nullptr : slides(recipe, i) ? local : rotary;
    AttentionBranch attention(model, recipe, layer, i, table);
    MlpBranch mlp(model, recipe, layer, i);
    if (recipe.parallel_residual) {
      model.blocks.push_back(std::make_unique<ParallelResidual>(std::move(attention), std::move(mlp)));
      continue;
    }
    model.blocks.push_back(std::make_unique<Residual<AttentionBranch>>(std::move(attention)));
    model.blocks.push_back(std::make_unique<Residual<MlpBranch>>(std::move(mlp)));
  }
  Norm norm(model, recipe, "head.norm");
  if (model.spec.task) {
    model.blocks.push_back(std::make_unique<TextLabelHead<Norm>>(model, std::move(norm)));
    return;
  }
  const LogitForm form{.divisor = recipe.logits_scaling, .softcap = recipe.logits_softcap};
  model.blocks.push_back(std::make_unique<Head<Norm>>(model, recipe, std::move(norm), form));
}

}  // namespace runner::decoder
