// Models with labels compute the logits, losses and gradients of transformers' ...ForSequenceClassification in a padded batch
// (make_classifier_reference.py made the tables), from the config.json that transformers wrote.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/base/files.hpp"
#include "test_model.hpp"
#include "tests/support/formula_weights.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

const std::vector<std::string> table_names = {
    "bert",    "roberta", "bert_regression", "gpt2", "llama",   "llama_regression",
    "mistral", "qwen2",   "gemma2",          "phi3", "gpt_neox"};

struct ClassifierTable {
  nlohmann::json json;
  Recipe recipe;
  std::unique_ptr<Model> model;
  std::vector<HfTensor> names;

  explicit ClassifierTable(const std::string& name)
      : json(nlohmann::json::parse(
            read_file(RUNNER_SOURCE_DIR "/tests/models/reference/classifiers/" + name + ".json"))) {
    recipe.model = model_from_hf_config(json.at("config"));
    recipe.data.objective = "classification";
    if (recipe.model.name == "bert")
      recipe.data.columns = Recipe::Data::Columns{{"text_pair", "second"}};  // the table has token types
    recipe.train.loss = recipe.model.num_labels == 1 ? "mse" : "cross_entropy";
    model = build_model(recipe.model, make_spec(recipe, *recipe.model.vocab_size, json.at("seq_len")));
    names = hf_names(recipe.model, model->spec);
    const auto parameters = model->spec.parameters();
    for (size_t slot = 0; slot < parameters.size(); ++slot)
      model->slots[slot] = torch::tensor(formula_values(*parameters[slot], names[slot], recipe.model.norm_offset))
                               .view(parameters[slot]->shape)
                               .requires_grad_(true);
  }

  MicroBatch batch() const {
    const auto lengths = json.at("lengths").get<std::vector<int64_t>>();
    const int64_t rows = std::ssize(lengths), length = json.at("seq_len");
    std::vector<int64_t> ids, positions, types;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t t = 0; t < length; ++t) {
        const int64_t i = row * length + t, text = lengths[static_cast<size_t>(row)];
        ids.push_back((7 * i + (i * i) % 13) % json.at("tokens").get<int64_t>());
        positions.push_back(t < text ? t : t - text);
        types.push_back(t > text / 2);
      }
    MicroBatch batch{.rows = rows, .fields = {tensor_of(ids, {rows, length}), tensor_of(positions, {rows, length})}};
    if (recipe.data.has_text_pairs()) batch.fields.push_back(tensor_of(types, {rows, length}));
    if (recipe.train.loss == "mse")
      batch.fields.push_back(torch::tensor(json.at("targets").get<std::vector<float>>()).view({rows, 1}));
    else
      batch.fields.push_back(tensor_of(json.at("targets").get<std::vector<int64_t>>(), {rows}));
    batch.host_fields = batch.fields;
    return batch;
  }

  torch::Tensor forward(const ForwardContext& context) const {
    torch::Tensor x;
    for (const auto& block : model->blocks) x = block->forward(x, context);
    return x;
  }
};

}  // namespace

TEST_CASE("rank 15: classifiers of texts compute transformers' logits, losses and gradients", "[rank15][reference]") {
  const auto name = GENERATE(from_range(table_names));
  CAPTURE(name);
  const ClassifierTable table(name);
  CHECK(table.recipe.model.labels == (name.ends_with("_regression")
                                          ? std::vector<std::string>{"LABEL_0"}
                                          : std::vector<std::string>{"low", "middle", "high"}));
  const auto batch = table.batch();
  {
    torch::NoGradGuard no_grad;
    ForwardContext context{&batch, /*training=*/false, 1};
    context.logits_of = 0;
    const auto logits = table.forward(context);
    const auto& expected = table.json.at("logits");
    for (size_t row = 0; row < expected.size(); ++row)
      for (size_t label = 0; label < expected[row].size(); ++label)
        CHECK_THAT(logits[static_cast<int64_t>(row)][static_cast<int64_t>(label)].item<double>(),
                   WithinAbs(expected[row][label].get<double>(), 1e-5));
  }
  const auto loss = table.forward({&batch, /*training=*/true, 1}) / static_cast<double>(batch.rows);
  CHECK_THAT(loss.item<double>(), WithinAbs(table.json.at("loss").get<double>(), 1e-5));
  loss.backward();
  std::map<std::string, double> squares;  // several parameters may be one tensor of transformers
  for (size_t slot = 0; slot < table.names.size(); ++slot)
    squares[table.names[slot].name] +=
        table.model->slots[slot].grad().to(torch::kFloat64).square().sum().item<double>();
  CHECK(squares.size() == table.json.at("gradient_norms").size());
  for (const auto& [tensor, norm] : table.json.at("gradient_norms").items()) {
    CAPTURE(tensor);
    REQUIRE(squares.contains(tensor));
    CHECK_THAT(std::sqrt(squares.at(tensor)),
               WithinRel(norm.get<double>(), 1e-4) || WithinAbs(norm.get<double>(), 1e-6));
  }
}

TEST_CASE("rank 15: an exported config.json says the same model and labels", "[rank15]") {
  const auto name = GENERATE(from_range(table_names));
  const ClassifierTable table(name);
  auto& model = table.recipe.model;
  const auto config = hf_config(model, table.model->spec);
  CHECK(config.at("architectures") == table.json.at("config").at("architectures"));
  CHECK(config.at("id2label") == table.json.at("config").at("id2label"));
  CHECK(config.at("label2id") == table.json.at("config").at("label2id"));
  CHECK(config.at("num_labels") == *model.num_labels);
  CHECK(model_settings(model_from_hf_config(config), *model.vocab_size) == model_settings(model, *model.vocab_size));
}
