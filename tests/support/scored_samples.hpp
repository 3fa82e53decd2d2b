// A model and a data set without tokens: rows of numbers with a label, which count several times or not at all.
#pragma once
#include <cmath>
#include <memory>

#include "runner/data/data.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner::testing {

namespace scored {

inline constexpr int64_t features = 5, width = 6, labels = 3;

inline std::vector<BatchField> fields() {
  return {{.name = "features", .type = ElementType::float32, .row = {features}},
          {.name = "label", .type = ElementType::int32},
          {.name = "times", .type = ElementType::uint8}};
}

inline ModelSpec spec() {
  const auto block = [](const char* name, BlockKind kind, int64_t out, int64_t in) {
    return BlockSpec{.name = name,
                     .kind = kind,
                     .parameters = {{.name = std::string(name) + ".weight",
                                     .shape = {out, in},
                                     .init = {Init::Kind::normal, 0.5},
                                     .split = {}}}};
  };
  ModelSpec spec;
  spec.family = "scored";
  spec.batch = fields();
  std::ranges::reverse(spec.batch);  // the order of a model's fields need not be that of the data's
  spec.blocks = {block("first", BlockKind::embedding, width, features),
                 block("middle", BlockKind::transformer, width, width), block("last", BlockKind::head, labels, width)};
  return spec;
}

struct First : Block {
  torch::Tensor& weight;
  const size_t features;
  explicit First(Model& model) : weight(model.slots[0]), features(model.spec.batch_field("features")) {}
  torch::Tensor forward(const torch::Tensor&, const ForwardContext& context) override {
    return at::linear(context.batch->fields[features], weight);
  }
};

struct Middle : Block {
  torch::Tensor& weight;
  explicit Middle(Model& model) : weight(model.slots[1]) {}
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext&) override { return at::linear(x.tanh(), weight); }
};

struct Last : Block {
  torch::Tensor& weight;
  const size_t label, times;
  explicit Last(Model& model)
      : weight(model.slots[2]), label(model.spec.batch_field("label")), times(model.spec.batch_field("times")) {}
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& context) override {
    const auto& fields = context.batch->fields;
    const auto losses =
        at::cross_entropy_loss(at::linear(x, weight), fields[label].to(torch::kInt64), {}, at::Reduction::None);
    return (losses * fields[times]).sum();
  }
};

inline std::unique_ptr<Model> model() {
  auto model = std::make_unique<Model>(spec());
  model->blocks.push_back(std::make_unique<First>(*model));
  model->blocks.push_back(std::make_unique<Middle>(*model));
  model->blocks.push_back(std::make_unique<Last>(*model));
  return model;
}

/// Sample k counts k mod 4 times.
struct Samples : Dataset {
  int64_t count;
  explicit Samples(int64_t count) : count(count) {}
  int64_t size() const override { return count; }
  std::vector<BatchField> fields() const override { return scored::fields(); }
  int64_t weight(int64_t sample) const override { return sample % 4; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto numbers = batch.row<float>(0, row);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::sin(static_cast<float>(7 * sample) + static_cast<float>(i));
    batch.row<int32_t>(1, row)[0] = static_cast<int32_t>(sample % labels);
    batch.row<uint8_t>(2, row)[0] = static_cast<uint8_t>(weight(sample));
  }
};

}  // namespace scored

}  // namespace runner::testing
