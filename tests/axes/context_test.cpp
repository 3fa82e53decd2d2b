// Context parallelism: ranks that share each row train as one rank does, in every form of attention and under every strategy of the
// data axis.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

const std::vector<MeshLine> context_meshes = {
    {1, 1, 2, 1, "single"},
    {1, 1, 4, 1, "single"},
    {1, 1, 4, 1, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {1, 1, 2, 1, "zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}},
    {1, 2, 2, 1, "ddp"},
    {1, 2, 2, 1, "fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}},
    {1, 3, 2, 1, "zero", {{"stage", 1}}},
    {1, 2, 2, 1, "zero", {{"stage", 2}}},
    {1, 1, 2, 2, "single"},
    {1, 2, 2, 2, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {1, 1, 2, 2, "zero", {{"stage", 2}}},
    {2, 1, 2, 1, "single"},
    {2, 1, 2, 2, "ddp"},
    {2, 2, 2, 1, "fsdp"},
};

std::string label_of(const TinyRun& run) {
  return fmt::format("{}, {}, {}, tied {}, packed {}, dropout {}, recompute {}, accumulation {}, {} {}", run.family,
                     to_text(tiny_mesh(run)), name_of(run.context_form), run.tied, run.packed, run.dropout,
                     run.recompute, run.accumulation, run.strategy, run.options.dump());
}

}  // namespace

TEST_CASE("fp64: every mesh with a context axis trains as one rank", "[context]") {
  auto run = run_in_float64();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.packed = GENERATE(false, true);
  run.accumulation = GENERATE(1, 2);
  run.clip_norm = 0.5;
  const auto single = train_tiny(run);
  static EveryNth chosen(7);
  for (const auto& mesh : context_meshes)
    for (const auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses}) {
      if (!chosen()) continue;
      auto meshed = run;
      put_on_mesh(meshed, mesh);
      meshed.context_form = form;
      INFO(label_of(meshed));
      check_same_training(train_tiny(meshed), single);
    }
}

TEST_CASE("fp64: rows of any length, dropout, recomputation and short batches under a context axis", "[context]") {
  auto run = run_in_float64();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.dropout = GENERATE(0.0, 0.3);
  run.seq_len = GENERATE(16, 13);
  run.recompute = GENERATE(false, true);
  run.packed = GENERATE(false, true);
  run.global_batch = 6;
  run.short_last = 1;  // some ranks have no rows
  const auto single = train_tiny(run);
  static EveryNth chosen(11);
  for (const auto& mesh : context_meshes)
    for (const auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses}) {
      if (!chosen()) continue;
      auto meshed = run;
      put_on_mesh(meshed, mesh);
      meshed.context_form = form;
      INFO(label_of(meshed) << ", rows of " << run.seq_len);
      check_same_training(train_tiny(meshed), single);
    }
}

TEST_CASE("initial values under a context axis are those of one rank, bit for bit", "[context]") {
  TinyRun run;
  run.steps = 0;
  const auto single = train_tiny(run);
  for (const auto& mesh : context_meshes) {
    put_on_mesh(run, mesh);
    INFO(label_of(run));
    check_equal(train_tiny(run), single);
  }
}

TEST_CASE("the curve under a context axis is close to that of one rank in every precision", "[context]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  const auto [precision, tolerance] =
      GENERATE(table<std::string, double>({{"32-true", 1e-5}, {"bf16-mixed", 5e-3}, {"bf16-true", 2e-2}}));
  run.precision = precision;
  const auto single = train_tiny(run);
  run.context_form = GENERATE(ContextForm::gather, ContextForm::ring, ContextForm::ulysses);
  for (size_t i : {0, 4}) {
    put_on_mesh(run, context_meshes[i]);
    INFO(label_of(run) << ", " << precision);
    check_close(train_tiny(run).losses, single.losses, tolerance);
  }
}
