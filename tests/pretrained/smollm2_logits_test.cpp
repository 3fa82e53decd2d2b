// SmolLM2-135M-Instruct from its GGUF file computes the logits of transformers (make_smollm2.py made the table).
#include "runner/checkpoint/hf.hpp"
#include "tests/models/test_model.hpp"
#include "tests/support/smollm2.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("SmolLM2's logits are those of transformers", "[gguf][rank3][rank5]") {
  const auto path = smollm2_file();
  const auto table = smollm2_table();
  const auto ids = table.at("ids").get<std::vector<int64_t>>();
  const auto length = std::ssize(ids);
  const auto recipe = model_of_hf_folder(path);
  auto model = build_model(recipe, make_spec(recipe, *recipe.vocab_size, length));
  const auto parameters = model->spec.parameters();
  const HfSource source(path, recipe, model->spec);
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    auto values = torch::empty(parameters[slot]->shape);
    source.read(slot, 0, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
    model->slots[slot] = values;
  }
  torch::NoGradGuard no_grad;
  MicroBatch batch{.rows = 1, .fields = {tensor_of(ids, {1, length}), tensor_of(ids, {1, length})}};
  ForwardContext context{&batch, false, 1};
  torch::Tensor x;
  for (size_t i = 0; i + 1 < model->blocks.size(); ++i) x = model->blocks[i]->forward(x, context);
  for (const auto& row : table.at("logits")) {
    CAPTURE(row.at("position"));
    context.logits_of = row.at("position").get<int64_t>();
    const auto logits = model->blocks.back()->forward(x, context)[0];
    CHECK(logits.argmax().item<int64_t>() == row.at("largest"));
    const auto expected = torch::tensor(row.at("values").get<std::vector<double>>(), torch::kFloat64);
    const auto every = logits.to(torch::kFloat64).slice(0, 0, logits.size(0), row.at("every").get<int64_t>());
    CHECK((every - expected).abs().max().item<double>() < 1e-4);
  }
}
