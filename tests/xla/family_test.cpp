// Every family of models trains and is validated under XLA as under LibTorch.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/support/every_nth.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

namespace {

using Catch::Matchers::WithinRel;

struct FamilyCase {
  std::string family;
  int devices = 1;
  std::function<void(TinyRun&)> change = [](TinyRun&) {};
};

/// Decoders, or the other families and adapters.
std::vector<FamilyCase> families(bool decoders) {
  const auto adapters = [](const char* method) {
    return [method](TinyRun& run) {
      run.fine_tune.method = method;
      run.fine_tune.rank = 4;
      run.fine_tune.alpha = 8;
    };
  };
  std::vector<FamilyCase> all;
  for (const auto& name : model_family_names())
    if (name != "plugin" && name != "resnet" && (family_kind(name) == "decoder") == decoders)  // resnet is refused
      all.push_back({name, name == "gemma2" || name == "mlp" ? 2 : 1});
  if (!decoders) {
    all.push_back({"llama", 1, adapters("lora")});
    all.push_back({"phi3", 2, adapters("dora")});
    all.push_back({"vit", 1, [](TinyRun& run) { run.mixes = true; }});
  }
  return all;
}

TinyRun family_run(const FamilyCase& one) {
  TinyRun run;
  run.family = one.family;
  run.n_layers = 1;
  run.vocab = run.has_tokens() ? 61 : 5;
  run.optimizer.lr = 1e-3;
  one.change(run);
  return run;
}

void check_families(const std::vector<FamilyCase>& all) {
  REQUIRE(all.size() > 5);
  EveryNth chosen(3);
  for (const auto& one : all) {
    if (!chosen()) continue;
    auto run = family_run(one);
    INFO(one.family << " " << run.fine_tune.method << " on " << one.devices);
    const auto expected = train_tiny(run);
    run.strategy = one.devices > 1 ? "xla_fsdp" : "xla";
    run.world_size = one.devices;
    const auto found = train_tiny(run);
    REQUIRE(found.losses.size() == 5);
    for (size_t i = 0; i < found.losses.size(); ++i) CHECK_THAT(found.losses[i], WithinRel(expected.losses[i], 1e-5));
  }
}

}  // namespace

TEST_CASE("each family of decoders trains under XLA as under LibTorch", "[xla][families]") {
  check_families(families(/*decoders=*/true));
}

TEST_CASE("other families and adapters train under XLA as under LibTorch", "[xla][families]") {
  check_families(families(/*decoders=*/false));
}

TEST_CASE("models of labels and numbers are validated under XLA as under LibTorch", "[xla][families]") {
  for (const char* loss : {"cross_entropy", "bce", "mse"}) {
    INFO(loss);
    TinyRun run;
    run.family = "mlp";
    run.n_layers = 1;
    run.vocab = 7;
    run.loss = loss;
    const auto sums = [&](const char* strategy) {
      run.strategy = strategy;
      std::vector<double> all;
      run_ranks(1, [&](World& world) {
        with_strategy(run, world, [&](Strategy& engine) { all = engine.evaluate_sums(tiny_batch(run, 0, 12)); });
      });
      return all;
    };
    const auto expected = sums("single"), found = sums("xla");
    REQUIRE(expected.size() > 4);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK_THAT(found[i], WithinRel(expected[i], 1e-5));
  }
}

}  // namespace runner::testing
