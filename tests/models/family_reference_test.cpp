// Every family computes the logits, losses and gradients of transformers (make_family_reference.py made the tables), from
// the config.json that transformers wrote.
#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <filesystem>

#include "runner/base/files.hpp"
#include "tests/support/formula_weights.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

torch::Tensor checkpoint_tensor(const ParameterSpec& parameter, const HfTensor& tensor, bool gemma) {
  return torch::tensor(formula_values(parameter, tensor, gemma)).view(parameter.shape).requires_grad_(true);
}

struct FamilyTable {
  explicit FamilyTable(const std::string& name)
      : json(nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/models/reference/families/" + name + ".json"))),
        recipe(model_from_hf_config(json.at("config"))),
        sequences(json.at("sequences")),
        seq_len(json.at("seq_len")),
        test(recipe, Weights::seeded, *recipe.vocab_size, seq_len),
        names(hf_names(recipe, test.model->spec)) {
    const auto parameters = test.model->spec.parameters();
    for (size_t slot = 0; slot < parameters.size(); ++slot)
      test.model->slots[slot] = checkpoint_tensor(*parameters[slot], names[slot], recipe.name.starts_with("gemma"));
  }

  nlohmann::json json;
  Recipe::Model recipe;
  int64_t sequences, seq_len;
  TestModel test;
  std::vector<HfTensor> names;
};

std::vector<std::string> family_tables() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(RUNNER_SOURCE_DIR "/tests/models/reference/families"))
    names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("logits, loss and gradient norms of each family are those of transformers", "[reference]") {
  auto name = GENERATE(from_range(family_tables()));
  CAPTURE(name);
  FamilyTable table(name);
  auto batch = micro_batch(hashed_batch(0, table.sequences, table.seq_len, *table.recipe.vocab_size), table.sequences,
                           table.seq_len);
  {
    torch::NoGradGuard no_grad;
    ForwardContext context{&batch, false, 1};
    torch::Tensor x;
    auto& blocks = table.test.model->blocks;
    for (size_t i = 0; i + 1 < blocks.size(); ++i) x = blocks[i]->forward(x, context);
    double worst = 0;
    for (int64_t position = 0; position < table.seq_len; ++position) {
      context.logits_of = position;
      auto logits = blocks.back()->forward(x, context)[table.sequences - 1];
      const auto& row = table.json.at("logits").at(static_cast<size_t>(position));
      auto expected = torch::tensor(row.get<std::vector<double>>(), torch::kFloat64);
      worst = std::max(worst, (logits.to(torch::kFloat64) - expected).abs().max().item<double>());
    }
    CHECK(worst < 1e-5);
  }
  auto loss = table.test.loss(batch) / static_cast<double>(table.sequences * table.seq_len);
  CHECK_THAT(loss.item<double>(), WithinAbs(table.json.at("loss").get<double>(), 1e-5));
  loss.backward();
  std::map<std::string, double> squares;
  for (size_t slot = 0; slot < table.names.size(); ++slot)
    squares[table.names[slot].name] +=
        table.test.model->slots[slot].grad().to(torch::kFloat64).square().sum().item<double>();
  for (const auto& [tensor, norm] : table.json.at("gradient_norms").items()) {
    CAPTURE(tensor);
    REQUIRE(squares.contains(tensor));
    CHECK_THAT(std::sqrt(squares.at(tensor)),
               WithinRel(norm.get<double>(), 1e-4) || WithinAbs(norm.get<double>(), 1e-6));
  }
  CHECK(squares.size() == table.json.at("gradient_norms").size());
}
