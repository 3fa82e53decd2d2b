// Comparing a checkpoint with the model and the optimizer of a recipe.
#include "runner/checkpoint/fit.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "support.hpp"
#include "tiny_models.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

Recipe recipe_of(const Recipe::Model& model) {
  Recipe recipe;
  recipe.model = model;
  recipe.model.vocab_size = tiny_vocab;
  return recipe;
}

ModelSpec spec_of(const Recipe& recipe) { return make_spec(recipe.model, *recipe.model.vocab_size, 8); }

/// A checkpoint of zeros with the tensors of that training. `settings`: as the trainer writes them, or not at all.
struct Saved {
  Folder folder;
  fs::path path;
  Saved(const Recipe& recipe, const std::vector<std::string>& kinds, bool settings = true) {
    const ModelSpec spec = spec_of(recipe);
    const std::vector<std::byte> zeros(size_t{1} << 16);
    std::vector<Piece> pieces;
    for (const auto* parameter : spec.parameters())
      for (const auto& kind : kinds)
        if (kind == "param/" || parameter->trainable)
          pieces.push_back({kind + parameter->name, "F32", parameter->shape, 0,
                            std::span(zeros).first(static_cast<size_t>(4 * parameter->numel()))});
    CheckpointWriter writer(folder.path, 5, 0, 1);
    TrainerState state = nlohmann::json::object();
    if (settings) state["settings"] = settings_of_tensors(recipe);
    path = writer.publish({writer.write_rank(pieces)}, state);
  }
  /// The message for a training with this recipe.
  std::string refusal(const Recipe& now) const {
    return message_of([&] { check_fit(Checkpoint(path), now, spec_of(now)); });
  }
};

const std::vector<std::string> adam_kinds{"param/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"};
const char* const none = "nothing was thrown";

struct Change {
  std::function<void(Recipe&)> change;
  std::string words;
};

}  // namespace

TEST_CASE("another model is refused with each setting and both values") {
  const Recipe gpt = recipe_of(tiny_gpt()), llama = recipe_of(tiny_llama());
  const Saved of_gpt(gpt, adam_kinds), of_llama(llama, adam_kinds);
  auto lines = [](const Saved& saved, const std::string& words) {
    return "the recipe cannot continue from " + saved.path.string() + ":\n  " + words +
           "\nA run keeps its model. Keep these settings, or start a new run";
  };
  for (const auto& [change, words] : {
           Change{[](Recipe& r) { r.model.n_layers = 1; }, "model.n_layers = 1, the checkpoint's is 2"},
           Change{[](Recipe& r) { r.model.n_heads = 4; }, "model.n_heads = 4, the checkpoint's is 3"},
           Change{[](Recipe& r) { r.model.dim = 48; }, "model.dim = 48, the checkpoint's is 24"},
           Change{[](Recipe& r) { r.model.hidden_dim = 48; }, "model.hidden_dim = 48, the checkpoint's is 96"},
           Change{[](Recipe& r) { r.model.activation = "gelu"; },
                  "model.activation = \"gelu\", the checkpoint's is \"gelu_tanh\""},
           Change{[](Recipe& r) { r.model.max_seq_len = 32; }, "model.max_seq_len = 32, the checkpoint's is 16"},
           Change{[](Recipe& r) { r.model.vocab_size = 60; }, "model.vocab_size = 60, the checkpoint's is 50"},
           Change{[](Recipe& r) { r.model.bias = r.model.tie_embeddings = false; },
                  "model.bias = false, the checkpoint's is true\n  model.tie_embeddings = false, the checkpoint's is "
                  "true"},
           Change{[](Recipe& r) { r.model = recipe_of(tiny_llama()).model; },
                  "model.name = \"llama\", the checkpoint's is \"gpt\""},
       }) {
    Recipe now = gpt;
    change(now);
    CHECK(of_gpt.refusal(now) == lines(of_gpt, words));
  }
  for (const auto& [change, words] : {
           Change{[](Recipe& r) { r.model.n_kv_heads = 4; }, "model.n_kv_heads = 4, the checkpoint's is 2"},
           Change{[](Recipe& r) { r.model.rope_theta = 1e4; },
                  "model.rope_theta = 10000.0, the checkpoint's is 500000.0"},
           Change{[](Recipe& r) { r.model.norm_eps = 1e-5; }, "model.norm_eps = 1e-05, the checkpoint's is 1e-06"},
       }) {
    Recipe now = llama;
    change(now);
    CHECK(of_llama.refusal(now) == lines(of_llama, words));
  }
  Recipe now = llama;
  now.model.rope_scaling.reset();
  CHECK_THAT(of_llama.refusal(now), ContainsSubstring("model.rope_scaling = unset, the checkpoint's is {"));
}

TEST_CASE("settings that leave the tensors usable may change") {
  const Recipe llama = recipe_of(tiny_llama());
  const Saved saved(llama, adam_kinds);
  for (const auto& change : std::vector<std::function<void(Recipe&)>>{
           [](Recipe&) {}, [](Recipe& r) { r.model.dropout = 0.2; },
           [](Recipe& r) { r.model.max_seq_len = 128; },  // llama has no table of positions
           [](Recipe& r) { r.model.n_kv_heads = 2, r.model.hidden_dim = 48; },
           [](Recipe& r) { r.model.init_from = "elsewhere"; },
           [](Recipe& r) {
             r.optimizer.lr = 1, r.optimizer.weight_decay = 0.3, r.optimizer.betas = {0.5, 0.6};
           },
           [](Recipe& r) { r.optimizer.groups = {{.pattern = "head.*", .lr = 0.1, .weight_decay = {}, .params = {}}}; },
           [](Recipe& r) { r.precision.mode = "bf16-true", r.strategy.name = "ddp", r.train.max_steps = 9; }}) {
    Recipe now = llama;
    change(now);
    CHECK(saved.refusal(now) == none);
  }
  Recipe now = llama;
  now.optimizer.name = "adam";
  CHECK(check_fit(Checkpoint(saved.path), now, spec_of(now)) ==
        std::vector<std::string>{"optimizer.name = \"adam\", the checkpoint's is \"adamw\"; it continues with the same "
                                 "moments"});
}

TEST_CASE("an optimizer with other state is refused, in both directions") {
  const Recipe adamw = recipe_of(tiny_gpt());
  Recipe sgd = adamw, momentum = adamw;
  sgd.optimizer.name = momentum.optimizer.name = "sgd";
  momentum.optimizer.momentum = 0.9;
  const Saved of_adamw(adamw, adam_kinds), of_sgd(sgd, {"param/"}),
      of_momentum(momentum, {"param/", "optimizer/momentum_buffer/"});
  CHECK_THAT(of_adamw.refusal(sgd),
             ContainsSubstring("\n  optimizer.name = \"sgd\", the checkpoint's is \"adamw\"\n") &&
                 EndsWith("weights alone: runner export RUN --output DIR, then "
                          "model.init_from = \"DIR\""));
  CHECK_THAT(of_sgd.refusal(adamw), ContainsSubstring("optimizer.name = \"adamw\", the checkpoint's is \"sgd\""));
  CHECK_THAT(of_sgd.refusal(momentum), ContainsSubstring("optimizer.momentum = 0.9, the checkpoint's is 0.0"));
  CHECK_THAT(of_momentum.refusal(sgd), ContainsSubstring("optimizer.momentum = 0.0, the checkpoint's is 0.9"));
  momentum.optimizer.momentum = 0.5;
  CHECK(of_momentum.refusal(momentum) == none);
  CHECK(of_sgd.refusal(sgd) == none);
}

TEST_CASE("a group with an optimizer of its own continues with the states of that optimizer only") {
  const auto with_group = [](const char* params, const nlohmann::json& own) {
    Recipe recipe = recipe_of(tiny_gpt());
    recipe.optimizer.groups = {{.pattern = params, .lr = {}, .weight_decay = {}, .params = {}, .own = own}};
    return recipe;
  };
  const Recipe common = recipe_of(tiny_gpt()), same = with_group("head.*", {{"name", "adam"}}),
               other = with_group("head.*", {{"name", "sgd"}});
  const Saved saved(common, adam_kinds);
  CHECK(saved.refusal(same) == none);
  CHECK(
      check_fit(Checkpoint(saved.path), same, spec_of(same)) ==
      std::vector<std::string>{
          "optimizer.groups = [{ name = \"adam\", params = [\"head.*\"] }], the checkpoint's is []; it continues with "
          "the same moments"});
  CHECK_THAT(
      saved.refusal(other),
      ContainsSubstring("the checkpoint's is []\n  the recipe's model has no `optimizer/exp_avg/head.norm.bias`, "
                        "which the checkpoint has"));
  const Saved grouped(with_group("head.*", {{"name", "sgd"}, {"momentum", 0.9}}), adam_kinds);
  CHECK_THAT(grouped.refusal(common), ContainsSubstring("optimizer.groups = [], the checkpoint's is [{"));
  // A group without an optimizer decides, too, which parameters have that of a later group.
  Recipe earlier = other;
  earlier.optimizer.groups.insert(earlier.optimizer.groups.begin(),
                                  with_group("head.norm.*", nlohmann::json::object()).optimizer.groups.front());
  CHECK_THAT(Saved(earlier, adam_kinds).refusal(other),
             ContainsSubstring("params = [\"head.*\"] }], the checkpoint's is [{ params = [\"head.norm.*\"] }, {"));
}

TEST_CASE("parameters may be frozen when a run continues, but not trained again without their optimizer state") {
  Recipe frozen = recipe_of(tiny_gpt());
  frozen.model.frozen = {"head.norm.weight"};
  Recipe trained = recipe_of(tiny_gpt());
  CHECK(Saved(trained, adam_kinds).refusal(frozen) == none);
  CHECK(Saved(frozen, adam_kinds).refusal(frozen) == none);
  const auto text = Saved(frozen, adam_kinds).refusal(trained);
  CHECK_THAT(text,
             ContainsSubstring("\n  `head.norm.weight` was frozen (model.frozen), so the checkpoint has no optimizer "
                               "state of it\nKeep model.frozen, or start a new run"));
}

TEST_CASE("without stored settings, names and shapes of the tensors are compared") {
  const Recipe gpt = recipe_of(tiny_gpt());
  const Saved old(gpt, adam_kinds, /*settings=*/false), weights(gpt, {"param/"}, /*settings=*/false);
  CHECK(old.refusal(gpt) == none);
  Recipe fewer = gpt, narrower = gpt;
  fewer.model.n_layers = 1;
  CHECK_THAT(
      old.refusal(fewer),
      ContainsSubstring("the recipe's model has no `param/blocks.1.attention.out.bias`, which the checkpoint has\n") &&
          EndsWith("A run keeps its model. Keep these settings, or start a new run"));
  narrower.model.dim = 12;
  CHECK_THAT(old.refusal(narrower),
             ContainsSubstring("\n  `param/embedding.tokens.weight` is [50, 12], the checkpoint's is [50, 24]\n") &&
                 ContainsSubstring("\n  and ") && ContainsSubstring(" more differences\n"));
  CHECK_THAT(weights.refusal(gpt),
             ContainsSubstring("the checkpoint has no `optimizer/exp_avg/embedding.tokens.weight`\n"));
}
