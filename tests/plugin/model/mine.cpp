// An own model in a library: a language model whose layers mix each token with the mean of those before it.
#include <runner/plugin.hpp>

namespace plugin = runner::plugin;
using torch::Tensor;

namespace {

/// The mean of tokens 0 to t, for each t: [B, T, C].
Tensor mean_before(const Tensor& x) {
  const auto counts = torch::arange(1, x.size(1) + 1, x.options()).view({1, -1, 1});
  return x.cumsum(1) / counts;
}

plugin::Block embedding(int64_t vocab, int64_t width) {
  return {"embedding",
          {{"embedding.weight", {vocab, width}, plugin::normal(0.05)}},
          [](const Tensor&, const plugin::Call& call) {
            return at::embedding(call.parameter("embedding.weight"), call.field("inputs"));
          }};
}

plugin::Block layer(int64_t index, int64_t width, double dropout) {
  const std::string name = "layers." + std::to_string(index);
  const std::string up = name + ".up.weight", bias = name + ".up.bias", down = name + ".down.weight";
  const auto forward = [=](const Tensor& x, const plugin::Call& call) {
    const Tensor mixed = torch::cat({x, mean_before(x)}, -1);
    const Tensor hidden = at::gelu(at::linear(mixed, call.parameter(up), call.parameter(bias)));
    return x + call.dropout(at::linear(hidden, call.parameter(down)), dropout);
  };
  return {name,
          {{up, {4 * width, 2 * width}, plugin::normal(0.05)},
           {bias, {4 * width}, plugin::zeros()},
           {down, {width, 4 * width}, plugin::normal(0.02)}},
          forward};
}

plugin::Block head() {
  return {"head",
          {},
          [](const Tensor& x, const plugin::Call& call) {
            const Tensor weight = call.parameter("embedding.weight");
            if (const auto position = call.logits_of()) return at::linear(x.select(1, *position), weight);
            return plugin::summed_cross_entropy(at::linear(x, weight), call.field("targets"));
          },
          {"embedding.weight"}};
}

plugin::Model make(const plugin::Options& options, const plugin::Sizes& sizes) {
  const int64_t width = options.integer("width", 32), layers = options.integer("layers", 2);
  const double dropout = options.number("dropout", 0.0);
  if (width < 1) throw std::invalid_argument("width must be at least 1");
  plugin::Model model;
  model.blocks.push_back(embedding(sizes.vocab_size, width));
  for (int64_t i = 0; i < layers; ++i) model.blocks.push_back(layer(i, width, dropout));
  model.blocks.push_back(head());
  return model;
}

}  // namespace

RUNNER_PLUGIN(make)
