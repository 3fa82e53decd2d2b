// Validation and logits on meshes: the sums of all ranks are those of one rank, and every rank gets the same logits.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Outcome {
  double loss = 0;
  std::vector<std::vector<float>> logits;  ///< of each rank
};

Outcome evaluate(const TinyRun& run) {
  Outcome outcome{.logits = std::vector<std::vector<float>>(static_cast<size_t>(run.world_size))};
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      const int64_t rows = run.global_batch / strategy.data_ranks();
      const double loss =
          strategy.sum_over_ranks(strategy.evaluate(tiny_batch(run, strategy.data_rank() * rows, rows)));
      auto logits = strategy.logits(tiny_batch(run, 0, 1), run.seq_len - 2);
      std::lock_guard lock(mutex);
      outcome.loss = loss;
      outcome.logits[static_cast<size_t>(world.rank)] = std::move(logits);
    });
  });
  return outcome;
}

void check_same(const Outcome& outcome, const Outcome& single) {
  CHECK(std::abs(outcome.loss - single.loss) <= 1e-12 * single.loss);
  for (const auto& logits : outcome.logits) {
    REQUIRE(logits.size() == single.logits[0].size());
    for (size_t i = 0; i < logits.size(); ++i)
      CHECK(std::abs(logits[i] - single.logits[0][i]) <= 1e-6f * std::abs(single.logits[0][i]) + 1e-7f);
  }
}

}  // namespace

TEST_CASE("fp64: losses of validation and logits on meshes are those of one rank", "[tensor][pipeline]") {
  auto run = run_in_float64();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.sequence_parallel = GENERATE(true, false);
  const auto single = evaluate(run);
  struct Mesh {
    int pipeline, data, tensor, virtual_stages;
    std::string strategy;
  };
  for (const auto& mesh : {Mesh{1, 1, 2, 1, "single"}, Mesh{1, 2, 4, 1, "ddp"}, Mesh{1, 3, 2, 1, "fsdp"},
                           Mesh{2, 1, 1, 1, "single"}, Mesh{2, 2, 1, 2, "fsdp"}, Mesh{3, 1, 2, 1, "single"}}) {
    auto meshed = run;
    meshed.pipeline = mesh.pipeline;
    meshed.tensor = mesh.tensor;
    meshed.virtual_stages = mesh.virtual_stages;
    meshed.schedule = mesh.virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b : PipelineSchedule::one_f_one_b;
    meshed.world_size = mesh.pipeline * mesh.data * mesh.tensor;
    meshed.strategy = mesh.strategy;
    INFO(run.family << ", tied " << run.tied << ", sequence parallel " << run.sequence_parallel << ", pipeline "
                    << mesh.pipeline << " x data " << mesh.data << " x tensor " << mesh.tensor);
    check_same(evaluate(meshed), single);
  }
}

TEST_CASE("fp64: losses of validation and logits under a context axis are those of one rank", "[context]") {
  auto run = run_in_float64();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.packed = GENERATE(false, true);
  run.seq_len = 13;
  const auto single = evaluate(run);
  for (const auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses})
    for (const auto& mesh : {MeshLine{1, 1, 2, 1, "single"}, MeshLine{1, 2, 2, 1, "fsdp"}, MeshLine{1, 1, 2, 2, "ddp"},
                             MeshLine{2, 1, 2, 1, "single"}}) {
      auto meshed = run;
      put_on_mesh(meshed, mesh);
      meshed.context_form = form;
      INFO(run.family << ", packed " << run.packed << ", " << to_text(tiny_mesh(meshed)) << ", " << name_of(form));
      check_same(evaluate(meshed), single);
    }
}
