// Predicted memory compared with the measured peak, for random plans with fixed seeds. RUNNER_MEMORY_PLANS=N checks N
// plans instead of 24 and prints the error of each.
#include "runner/base/hash.hpp"
#include "strategies/collective/libtorch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "tests/support/measured_memory.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Draws with integer arithmetic, so every C++ library makes the same plans.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(mix64(seed)) {}
  int64_t below(int64_t count) {
    state_ = mix64(state_ + 0x9e3779b97f4a7c15ull);
    return static_cast<int64_t>(state_ % static_cast<uint64_t>(count));
  }
  bool coin() { return below(2) == 1; }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<int64_t>(choices.size())));
  }

 private:
  uint64_t state_;
};

nlohmann::json zero_options(Draw& draw) {
  nlohmann::json options{{"stage", draw.of({1, 2, 3})}};
  if (draw.coin()) options["reduce_bucket_size"] = draw.of({20'000, 100'000, 10'000'000});
  if (options["stage"] == 3)
    options.update({{"stage3_param_persistence_threshold", draw.of({0, 1000, 100'000})},
                    {"stage3_max_reuse_distance", draw.of({0, 1'000'000'000})}});
  if (draw.below(4) == 0) options["reduce_scatter"] = false;
  return options;
}

nlohmann::json fsdp_options(Draw& draw, int world_size) {
  using Text = std::string;
  nlohmann::json options{
      {"sharding_strategy", draw.of<Text>({"FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"})},
      {"auto_wrap_policy", draw.of<Text>({"block", "block", "none"})},
      {"reduce_every_micro_batch", draw.coin()}};
  if (options["sharding_strategy"] == "HYBRID_SHARD") options["hybrid_group_size"] = world_size % 2 == 0 ? 2 : 1;
  return options;
}

nlohmann::json ddp_options(Draw& draw) {
  nlohmann::json options{{"gradient_as_bucket_view", draw.coin()}};
  if (draw.coin()) options["bucket_cap_mb"] = draw.of({0.1, 0.5});
  return options;
}

TinyRun random_run(uint64_t seed) {
  Draw draw(seed);
  TinyRun run;
  run.strategy = draw.of<std::string>({"single", "ddp", "fsdp", "fsdp", "zero", "zero"});
  run.world_size = run.strategy == "single" ? 1 : static_cast<int>(1 + draw.below(4));
  run.family = draw.of<std::string>({"gpt", "llama"});
  run.n_heads = draw.of<int64_t>({4, 5, 8});
  run.dim = run.n_heads * draw.of<int64_t>({16, 24, 32});
  run.n_layers = 1 + draw.below(5);
  run.seq_len = 16 * (1 + draw.below(6));
  run.vocab = draw.of<int64_t>({257, 503, 1009});
  run.loss_chunk_tokens = draw.of<int64_t>({0, 64, 128});
  run.accumulation = draw.of<int64_t>({1, 1, 3});
  run.global_batch = (2 + draw.below(5)) * run.world_size * run.accumulation;
  run.precision = draw.of<std::string>({"32-true", "32-true", "bf16-mixed", "bf16-mixed", "bf16-true", "64-true"});
  run.recompute = draw.coin();
  run.tied = draw.coin();
  if (run.strategy == "zero") run.options = zero_options(draw);
  if (run.strategy == "fsdp") run.options = fsdp_options(draw, run.world_size);
  if (run.strategy == "ddp") run.options = ddp_options(draw);
  return run;
}

std::string text_of(const TinyRun& run) {
  return fmt::format(
      "{} {}, {} of {} layers, dim {}, {} heads, vocab {}, {} tokens, {} sequences on {} ranks in {} micro-batches, "
      "chunks of {}, {}, recompute {}, tied {}",
      run.strategy, run.options.dump(), run.family, run.n_layers, run.dim, run.n_heads, run.vocab, run.seq_len,
      run.global_batch, run.world_size, run.accumulation, run.loss_chunk_tokens, run.precision, run.recompute,
      run.tied);
}

}  // namespace

TEST_CASE("memory of random plans is predicted with an error between -1 and +3 %", "[memory]") {
  at::set_num_threads(1);
  const char* asked = std::getenv("RUNNER_MEMORY_PLANS");
  uint64_t plans = asked ? std::strtoull(asked, nullptr, 10) : 12;
  for (uint64_t seed = 0; seed < plans; ++seed) {
    TinyRun run = random_run(seed);
    ModelSpec spec = tiny_spec(run);
    auto claim = static_cast<double>(find_strategy(run.strategy)->entry->memory(tiny_job(run, spec)).total());
    auto measured = static_cast<double>(measure_memory(run).peak);
    double percent = 100 * (claim / measured - 1);
    std::string line = fmt::format("plan {}: {:+.2f} %, {:.0f} claimed, {:.0f} measured; {}", seed, percent, claim,
                                   measured, text_of(run));
    if (asked) std::printf("%s\n", line.c_str());
    INFO(line);
    CHECK(percent >= -1);
    CHECK(percent <= 3);
  }
}

TEST_CASE("memory of plans that older versions underestimated", "[memory]") {
  at::set_num_threads(1);
  TinyRun zero;
  zero.strategy = "zero";
  zero.options = {{"stage", 1}};
  zero.world_size = 2;
  zero.family = "llama";
  zero.dim = 128;
  zero.n_layers = 2;
  zero.vocab = 503;
  zero.tied = false;
  TinyRun fsdp;
  fsdp.strategy = "fsdp";
  fsdp.world_size = 2;
  fsdp.dim = 160;
  fsdp.n_layers = 5;
  fsdp.n_heads = 5;
  fsdp.seq_len = 96;
  fsdp.vocab = 1009;
  fsdp.precision = "bf16-mixed";
  fsdp.recompute = true;
  fsdp.loss_chunk_tokens = 128;
  TinyRun zero_alone = zero;
  zero_alone.world_size = 1;
  for (TinyRun run : {zero, zero_alone, fsdp}) {
    run.global_batch = 6 * run.world_size;
    ModelSpec spec = tiny_spec(run);
    auto claim = static_cast<double>(find_strategy(run.strategy)->entry->memory(tiny_job(run, spec)).total());
    auto measured = static_cast<double>(measure_memory(run).peak);
    INFO(text_of(run) << ": claimed " << claim << ", measured " << measured);
    CHECK(claim >= 0.99 * measured);
    CHECK(claim <= 1.03 * measured);
  }
}
