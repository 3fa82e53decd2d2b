// vit and resnet compute the logits of transformers (make_vision_reference.py made the tables), from the config.json that
// transformers wrote, with the same names and shapes of tensors.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/base/files.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"

using namespace runner;

namespace {

uint32_t hash32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352d;
  x = (x ^ (x >> 15)) * 0x846ca68b;
  return x ^ (x >> 16);
}

uint32_t fnv1a(const std::string& name) {
  uint32_t h = 0x811c9dc5;
  for (unsigned char byte : name) h = (h ^ byte) * 0x01000193;
  return h;
}

torch::Tensor hashed(const std::string& name, const std::vector<int64_t>& shape, double scale, double shift) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double unit = hash32(static_cast<uint32_t>(i) + hash32(fnv1a(name))) / 4294967296.0 - 0.5;
    values.push_back(static_cast<float>(unit * scale + shift));
  }
  return torch::tensor(values).view(shape);
}

torch::Tensor stored_tensor(const std::string& name, const std::vector<int64_t>& shape) {
  const bool one = shape.size() == 1 && (name.ends_with("weight") || name.ends_with("running_var"));
  return hashed(name, shape, shape.size() > 1 ? 0.4 : 0.5, one ? 1 : 0);
}

}  // namespace

TEST_CASE("rank 11: vit and resnet compute transformers' logits", "[rank11][vision]") {
  torch::NoGradGuard no_grad;
  const auto name = GENERATE(as<std::string>(), "vit", "resnet_basic", "resnet_bottleneck");
  INFO(name);
  const auto table =
      nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/models/reference/vision/" + name + ".json"));
  auto recipe = model_from_hf_config(table.at("config"));
  recipe.image_size = table.at("image_size");
  const auto spec = make_spec(recipe, recipe.num_labels.value(), 1);
  const auto model = build_model(recipe, spec);
  const auto names = hf_names(recipe, spec);
  const auto stored = spec.stored();
  CHECK(stored.size() == table.at("tensors").size());
  model->buffers.resize(spec.buffers.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    INFO(names[i].name);
    CHECK(table.at("tensors").at(names[i].name) == stored[i]->shape);
    const size_t parameters = model->slots.size();
    (i < parameters ? model->slots[i] : model->buffers[i - parameters]) =
        stored_tensor(names[i].name, stored[i]->shape);
  }
  const int64_t size = recipe.image_size;
  MicroBatch batch{.rows = 2};
  batch.fields = {hashed("pixels", {2, 3, size, size}, 2, 0), torch::zeros({2}, torch::kInt64)};
  ForwardContext context{&batch, /*training=*/false};
  context.logits_of = 0;
  torch::Tensor x;
  for (const auto& block : model->blocks) x = block->forward(x, context);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t c = 0; c < 5; ++c) {
      const double wanted = table.at("logits").at(static_cast<size_t>(row)).at(static_cast<size_t>(c));
      CHECK_THAT(x[row][c].item<double>(),
                 Catch::Matchers::WithinRel(wanted, 1e-5) || Catch::Matchers::WithinAbs(wanted, 1e-5));
    }
  // The config that an export writes gives the same model.
  const auto again = model_from_hf_config(hf_config(recipe, spec));
  CHECK(model_settings(again, 5) == model_settings(recipe, 5));
}
