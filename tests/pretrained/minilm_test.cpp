// all-MiniLM-L6-v2, a BERT of six layers: its embeddings are those of transformers (make_minilm.py made the table). Skipped where
// scripts/setup --minilm has not downloaded it.
#include "runner/checkpoint/hf.hpp"
#include "runner/models/pooling.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/models/test_model.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("embeddings of MiniLM are those of transformers, in a padded batch", "[rank15]") {
  const fs::path folder = RUNNER_SOURCE_DIR "/.deps/minilm";
  if (!fs::exists(folder / "config.json")) SKIP("scripts/setup --minilm has not downloaded the model");
  const auto table = nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/pretrained/reference/minilm.json"));
  const auto& texts = table.at("texts");
  const auto tokenizer = open_tokenizer_file(folder);
  CHECK(tokenizer->special_tokens().mask == 103);

  size_t length = 0;
  for (const auto& text : texts) length = std::max(length, text.at("ids").size());
  std::vector<int64_t> inputs, positions;
  for (const auto& text : texts) {
    const auto ids = tokenizer->encode(text.at("text").get<std::string>(), /*add_special_tokens=*/true);
    CHECK(ids == text.at("ids").get<std::vector<int32_t>>());
    for (size_t i = 0; i < length; ++i) {
      inputs.push_back(i < ids.size() ? ids[i] : 0);
      positions.push_back(static_cast<int64_t>(i < ids.size() ? i : i - ids.size()));
    }
  }

  auto recipe = model_of_hf_folder(folder);
  CHECK(recipe.name == "bert");
  auto model = build_model(recipe, make_spec(recipe, *recipe.vocab_size, std::ssize(inputs), RowKind::packed));
  const auto parameters = model->spec.parameters();
  const HfSource source(folder, recipe, model->spec);
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    auto values = torch::zeros(parameters[slot]->shape);
    // The folder has no head for masked language modelling.
    CHECK(source.has(slot) == !parameters[slot]->name.starts_with("head."));
    if (source.has(slot)) source.read(slot, 0, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
    model->slots[slot] = values;
  }

  torch::NoGradGuard no_grad;
  const std::vector<int64_t> sizes = {std::ssize(texts), static_cast<int64_t>(length)};
  MicroBatch batch{.rows = std::ssize(texts),
                   .fields = {tensor_of(inputs, sizes), tensor_of(inputs, sizes), tensor_of(positions, sizes)}};
  batch.host_fields = batch.fields;
  const ForwardContext context{&batch, false, 1};
  torch::Tensor x;
  for (size_t i = 0; i + 1 < model->blocks.size(); ++i) x = model->blocks[i]->forward(x, context);
  const TokenPositions places{.on_device = batch.fields[2], .on_host = batch.fields[2]};
  for (const auto& [pooling, key] : {std::pair(Pooling::mean, "mean"), {Pooling::cls, "cls"}}) {
    const auto embeddings = pooled(x, places, pooling);
    for (size_t row = 0; row < texts.size(); ++row) {
      CAPTURE(key, row);
      const auto expected = torch::tensor(texts[row].at(key).get<std::vector<double>>(), torch::kFloat64);
      const auto every = embeddings[static_cast<int64_t>(row)].slice(0, 0, recipe.dim, 4).to(torch::kFloat64);
      CHECK((every - expected).abs().max().item<double>() < 1e-5);
    }
  }
}
