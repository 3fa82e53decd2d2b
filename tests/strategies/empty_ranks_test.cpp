// Ranks and micro-batches that have no rows, one row, only padding or only ignored targets do not change a training, for all families,
// losses, strategies, axes and reducers.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "strategies/collective/gathered_rows.hpp"
#include "tests/axes/meshed_runs.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/strategy_forms.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Case {
  std::string label;
  TinyRun run;
};

/// In the order of their places, the rows of these batches belong to the ranks: the first ranks have the first ones.
const std::vector<TinyBatch> uneven = {
    {.rows = 8, .first = 0},
    {.rows = 1, .first = 20},
    {.rows = 3, .first = 40},
    {.rows = 8, .ignored_from = 0, .ignored_to = 4, .first = 60},
    {.rows = 8, .ignored_from = 1, .ignored_to = 8, .first = 80, .only_padding = true},
    {.rows = 5, .ignored_from = 0, .ignored_to = 5, .first = 100},
    {.rows = 7, .ignored_from = 6, .ignored_to = 7, .first = 120}};

TinyRun small_run(const std::string& family) {
  auto run = run_in_float64();
  run.family = family;
  run.batches = uneven;
  run.steps = std::ssize(uneven);
  run.global_batch = 8;
  run.optimizer.lr = 0.05;
  run.tied = family_kind(family) == "encoder";
  run.packed = family_kind(family) == "encoder";
  run.n_layers = 2;
  run.dim = 16;
  run.n_heads = 2;
  run.seq_len = 8;
  run.loss_chunk_tokens = 12;
  return run;
}

Case changed(Case made, const std::string& label, const std::function<void(TinyRun&)>& change) {
  made.label += ", " + label;
  change(made.run);
  return made;
}

torch::Tensor focal_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  const auto likely = at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
  return -(1 - likely.exp()).square() * likely;
}

thread_local World* world_of_thread = nullptr;

/// Cross entropy, multiplied by a number that depends on the rows of all ranks.
torch::Tensor joint_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  World& world = *world_of_thread;
  std::vector<int64_t> counts{logits.size(0)};
  if (world.size > 1) {
    auto own = torch::full({1}, static_cast<double>(logits.size(0)), torch::kFloat64);
    auto all = torch::empty({world.size}, torch::kFloat64);
    world.control->_allgather_base(all, own)->wait();
    counts.clear();
    for (int64_t rank = 0; rank < world.size; ++rank) counts.push_back(all[rank].item().toLong());
  }
  const auto shares = gathered_rows(at::softmax(logits, 1), world.group, counts).sum(0) / 64;
  const auto losses = logits.logsumexp(1) - logits.gather(1, targets.unsqueeze(1)).squeeze(1);
  return losses * (1 + shares.square().sum());
}

/// train_tiny() with world_of_thread.
TinyResult train_jointly(const TinyRun& run) {
  return train_tiny(run, [](int world_size, const std::function<void(World&)>& body) {
    run_ranks(world_size, [&](World& world) {
      world_of_thread = &world;
      body(world);
    });
  });
}

/// Models that predict tokens.
std::vector<Case> token_cases() {
  std::vector<Case> cases;
  for (const auto& family : model_families())
    if (is_language_model(family)) cases.push_back({family, small_run(family)});
  for (const char* family : {"gpt", "llama"}) {
    const Case plain{family, small_run(family)};
    cases.push_back(changed(plain, "loss of a hook", [](TinyRun& run) { run.token_loss = focal_loss; }));
    cases.push_back(changed(plain, "packed, dropout, recomputed", [](TinyRun& run) {
      run.packed = run.recompute = true;
      run.dropout = 0.2;
    }));
    cases.push_back(changed(plain, "tied, clipped", [](TinyRun& run) {
      run.tied = true;
      run.clip_norm = 0.3;
    }));
    cases.push_back(changed(plain, "adapters", [](TinyRun& run) {
      run.fine_tune.method = "lora";
      run.fine_tune.rank = 2;
    }));
  }
  return cases;
}

/// Models that predict labels or numbers.
std::vector<Case> row_cases() {
  std::vector<Case> cases;
  for (const char* family : {"gpt", "llama", "gemma2", "bert", "roberta"})
    for (const char* loss : {"cross_entropy", "mse"}) {
      auto run = small_run(family);
      run.labels = 3;
      run.packed = false;
      run.loss = loss;
      cases.push_back({fmt::format("{} of texts, {}", family, loss), run});
    }
  for (const char* loss : {"cross_entropy", "bce", "mse", "l1", "huber"}) {
    auto run = small_run("mlp");
    run.vocab = 5;
    run.loss = loss;
    cases.push_back({fmt::format("mlp, {}", loss), run});
  }
  for (const char* family : {"vit", "mlp"}) {
    auto run = small_run(family);
    run.vocab = 5;
    cases.push_back(changed({family, run}, "loss of a hook", [](TinyRun& own) { own.token_loss = focal_loss; }));
  }
  for (const bool mixes : {false, true})
    for (const char* family : {"vit", "resnet"}) {
      auto run = small_run(family);
      run.vocab = 5;
      run.mixes = mixes;
      run.sync_batchnorm = true;  // otherwise the micro-batch of a rank decides
      cases.push_back({fmt::format("{}, mixed rows {}", family, mixes), run});
      if (std::string(family) == "resnet")
        cases.push_back(changed(cases.back(), "bottleneck, recomputed", [](TinyRun& own) {
          own.layer_type = "bottleneck";
          own.recompute = true;
        }));
    }
  return cases;
}

/// The strategies whose sum over ranks is exact.
std::vector<Form> exact_forms() {
  std::vector<Form> forms = {{"ddp", device_run("ddp", 2)},
                             {"ddp, 4 ranks", device_run("ddp", 4)},
                             {"dp", device_run("dp", 3)},
                             {"horovod", device_run("horovod", 3)},
                             {"bagua", device_run("bagua", 3)}};
  auto hierarchical = device_run("bagua", 4, {{"hierarchical", true}});
  hierarchical.local_size = 2;
  forms.push_back({"bagua, hierarchical", hierarchical});
  const auto add = [&](const std::vector<Form>& list) {
    for (const auto& form : list)
      if (form.run.family == "gpt" && form.run.tied) forms.push_back(form);
  };
  add(fsdp_forms());
  add(zero_forms());
  add(chunk_forms());
  return forms;
}

const std::vector<MeshLine> meshes = {
    {1, 1, 1, 2, "single"},
    {1, 1, 2, 1, "single"},
    {2, 1, 1, 1, "single"},
    {1, 2, 1, 2, "ddp"},
    {1, 2, 2, 1, "zero", {{"stage", 2}}},
    {2, 2, 1, 1, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {1, 2, 2, 2, "zero", {{"stage", 1}}},
};

void check_like(const TinyRun& run, const TinyResult& single, const std::string& label) {
  INFO(label << ", micro-batches " << run.accumulation);
  TinyResult result;
  REQUIRE_NOTHROW(result = train_tiny(run));
  check_same_training(result, single);
}

}  // namespace

TEST_CASE("fp64: ranks without rows or without targets that count do not change a training", "[parity][empty]") {
  static EveryNth chosen(61);
  const bool of_tokens = GENERATE(true, false);
  const auto cases = of_tokens ? token_cases() : row_cases();
  const auto& [label, run] = cases[GENERATE_COPY(range(size_t{0}, cases.size()))];
  std::optional<TinyResult> single;
  const auto check = [&](TinyRun other, const std::string& form) {
    for (const int accumulation : {1, 2}) {
      // The micro-batch of several ranks decides the statistics.
      if (run.family == "resnet" && accumulation > 1) continue;
      if (!chosen()) continue;
      if (!single) single = train_tiny(run);
      other.accumulation = accumulation;
      check_like(other, *single, label + ", " + form);
    }
  };
  for (const auto& form : exact_forms()) {
    auto other = run;
    other.strategy = form.run.strategy;
    other.options = form.run.options;
    other.world_size = form.run.world_size;
    other.local_size = form.run.local_size;
    if (other.options.contains("auto_wrap_policy") && other.options["auto_wrap_policy"].is_array()) continue;
    check(other, form.label);
  }
  if (!of_tokens || family_kind(run.family) == "encoder") return;
  for (const auto& mesh : meshes) {
    auto other = run;
    put_on_mesh(other, mesh);
    check(other, fmt::format("{}, {}", to_text(tiny_mesh(other)), mesh.strategy));
  }
}

TEST_CASE("fp64: a loss over the rows of all ranks is called on ranks without rows, too", "[parity][empty]") {
  auto run = small_run("gpt");
  run.loss_chunk_tokens = 0;
  run.token_loss = joint_loss;
  const auto single = train_jointly(run);
  for (const char* strategy : {"ddp", "fsdp", "zero"})
    for (const int ranks : {2, 4}) {
      INFO(strategy << ", " << ranks << " ranks");
      run.strategy = strategy;
      run.world_size = ranks;
      check_same_training(train_jointly(run), single);
    }
}

TEST_CASE("fp64: batch norm with the statistics of each rank takes none of a rank without rows", "[parity][empty]") {
  auto run = small_run("resnet");
  run.vocab = 5;
  const int ranks = GENERATE(2, 4);
  run.accumulation = ranks;  // the micro-batches are those of the ranks
  const auto single = train_tiny(run);
  run.accumulation = 1;
  run.world_size = ranks;
  for (const char* strategy : {"ddp", "fsdp", "zero"}) {
    run.strategy = strategy;
    check_like(run, single, fmt::format("{}, {} ranks", strategy, ranks));
  }
}

TEST_CASE("a rank without rows is to every reducer a rank whose targets do not count", "[reducers][empty]") {
  for (auto form : reducer_forms()) {
    if (form.run.options.value("algorithm", "") == "async") continue;  // its averages depend on time
    INFO(form.label);
    const int64_t ranks = form.run.world_size;
    TinyRun with_rows = form.run, without = form.run;
    with_rows.steps = without.steps = 5;
    for (int64_t step = 0; step < with_rows.steps; ++step) {
      const int64_t first = 20 * step;
      const bool all = step == 0;  // otherwise only the last rank has a row that counts
      with_rows.batches.push_back({.rows = ranks, .ignored_to = all ? 0 : ranks - 1, .first = first});
      without.batches.push_back({.rows = all ? ranks : 1, .first = all ? first : first + ranks - 1});
    }
    const auto result = train_tiny(without);
    for (const double norm : result.norms) CHECK(std::isfinite(norm));
    check_equal_with_norms(result, train_tiny(with_rows));
  }
}
