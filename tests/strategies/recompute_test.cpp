// Activation checkpointing does not change any bit of the results, for any set of recomputed blocks.
#include <ATen/autocast_mode.h>
#include "strategies/collective/libtorch.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "strategies/contract/host_checkpoints.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct RecomputeForm {
  std::string strategy;
  int world_size;
  nlohmann::json options = nlohmann::json::object();
};

std::vector<RecomputeForm> recompute_forms() {
  return {{.strategy = "single", .world_size = 1},
          {.strategy = "ddp", .world_size = 2},
          {.strategy = "fsdp", .world_size = 2},
          {.strategy = "fsdp", .world_size = 2, .options = {{"auto_wrap_policy", "none"}}},
          {.strategy = "fsdp", .world_size = 2, .options = {{"sharding_strategy", "SHARD_GRAD_OP"}}},
          {.strategy = "fsdp",
           .world_size = 4,
           .options = {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}},
          {.strategy = "zero", .world_size = 2, .options = {{"stage", 1}}},
          {.strategy = "zero", .world_size = 2, .options = {{"stage", 2}, {"reduce_bucket_size", 5000}}},
          {.strategy = "zero", .world_size = 2, .options = {{"stage", 3}}},
          {.strategy = "zero",
           .world_size = 3,
           .options = {{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}};
}

std::vector<Recipe::ActivationCheckpointing> sets() {
  return {{.mode = "all"},
          {.mode = "every", .every = 2},
          {.mode = "named", .blocks = {"*"}},
          {.mode = "named", .blocks = {"head"}},
          {.mode = "named", .blocks = {"embedding"}},
          {.mode = "named", .blocks = {"blocks.1", "head"}},
          {.mode = "named", .blocks = {"*.mlp"}},
          {.mode = "named", .blocks = {"blocks.0.attention", "blocks.1"}}};
}

}  // namespace

TEST_CASE("recomputing any set of blocks equals recomputing none, tied and untied", "[parity][recompute]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.steps = 2;
  run.accumulation = 2;
  run.dropout = 0.1;
  for (const auto& form : recompute_forms()) {
    run.strategy = form.strategy;
    run.world_size = form.world_size;
    run.options = form.options;
    run.checkpointing = {};
    auto kept = train_tiny(run);
    for (const auto& set : sets()) {
      if (run.family == "llama" && set.blocks != std::vector<std::string>{"*"}) continue;
      run.checkpointing = set;
      INFO(run.family << ", tied " << run.tied << ", " << form.strategy << " " << form.options.dump() << ", "
                      << set.mode << " " << (set.blocks.empty() ? "" : set.blocks.back()));
      auto recomputed = train_tiny(run);
      CHECK(recomputed.losses == kept.losses);
      CHECK(recomputed.norms == kept.norms);
      CHECK(recomputed.state == kept.state);
    }
  }
}

TEST_CASE("inputs kept in host memory change no bit", "[parity][recompute]") {
  at::set_num_threads(1);
  TinyRun run;
  run.n_layers = 4;
  run.steps = 2;
  run.accumulation = 2;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  for (const auto& form : recompute_forms()) {
    run.strategy = form.strategy;
    run.world_size = form.world_size;
    run.options = form.options;
    run.checkpointing = {};
    auto kept = train_tiny(run);
    for (auto set : sets()) {
      set.cpu_checkpointing = true;
      run.checkpointing = set;
      INFO(run.precision << ", " << form.strategy << " " << form.options.dump() << ", " << set.mode << " "
                         << (set.blocks.empty() ? "" : set.blocks.back()));
      auto waited = train_tiny(run);
      CHECK(waited.losses == kept.losses);
      CHECK(waited.state == kept.state);
    }
  }
}

TEST_CASE("inputs kept in host memory are predicted there, and two of them on the device", "[memory][recompute]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.dim = 32;  // activations exceed parameters, so at the peak all inputs are in memory
  run.n_layers = 6;
  run.seq_len = 128;
  run.vocab = 101;
  run.loss_chunk_tokens = 64;
  run.strategy = GENERATE(as<std::string>(), "single", "fsdp", "zero");
  run.world_size = run.strategy == "single" ? 1 : 2;
  run.checkpointing.mode = GENERATE(as<std::string>(), "all", "every");
  run.checkpointing.every = 2;
  ModelSpec spec = tiny_spec(run);
  const Entry& entry = *find_strategy(run.strategy)->entry;
  INFO(run.family << ", " << run.strategy << ", " << run.checkpointing.mode);
  auto on_device = entry.memory(tiny_job(run, spec));
  run.checkpointing.cpu_checkpointing = true;
  Job job = tiny_job(run, spec);
  auto claim = entry.memory(job);
  int64_t input = job.micro_batch_size * run.seq_len * run.dim * 4, inputs = run.checkpointing.mode == "all" ? 6 : 3;
  CHECK(claim.host == inputs * input);
  CHECK(claim.total() < on_device.total());
  CHECK(on_device.total() - claim.total() <= (inputs - 1) * input);
  auto measured = measure_memory(run);
  CHECK(measured.between_steps == claim.between_steps);
  // The block's input has returned. The device needs most in a later block than both memories together, with more gradients.
  const auto later = claim.gradients - on_device.gradients;
  const auto together = static_cast<double>(claim.total() - later + claim.host - input);
  CHECK(together > 0.99 * static_cast<double>(measured.peak));
  CHECK(together < 1.03 * static_cast<double>(measured.peak));
}

TEST_CASE("an input leaves the device when the next recomputed block starts, and returns before its backward",
          "[recompute]") {
  HostCheckpoints host(torch::kCPU, /*pinned=*/false);
  MemoryAccount account;
  AccountScope scope(account);
  constexpr int64_t bytes = 4096;
  for (int64_t i = 0; i < 4; ++i) {
    host.push(torch::full({bytes / 4}, static_cast<float>(i)));
    CHECK(account.current() == bytes * (i + 2));  // all are in host memory, the last one also on the device
  }
  for (int64_t i = 3; i >= 0; --i) {
    auto x = host.pop();
    CHECK(x.eq(static_cast<float>(i)).all().item<bool>());
    int64_t on_host = i, on_device = i > 0 ? 2 : 1;
    CHECK(account.current() == bytes * (on_host + on_device));
  }
  CHECK(account.current() == 0);
}

TEST_CASE("a block that throws during recomputation leaves autocast unchanged", "[recompute]") {
  TinyRun run;
  run.precision = "bf16-mixed";
  run.checkpointing = {.mode = "named", .blocks = {"head"}};
  run_ranks(1, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      int runs = 0;
      strategy.use_loss([&](const torch::Tensor& logits, const torch::Tensor&) -> torch::Tensor {
        if (torch::GradMode::is_enabled() && ++runs == 1) throw std::runtime_error("the block fails");
        return logits.sum(1);
      });
      bool failed = false;
      try {
        strategy.step(tiny_input(run, world.rank, 0));
      } catch (const std::runtime_error&) {
        failed = true;
      }
      RANK_CHECK(failed);
      RANK_CHECK(runs == 1);
      RANK_CHECK(!at::autocast::is_autocast_enabled(at::kCPU));
      strategy.step(tiny_input(run, world.rank, 1));  // the interrupted step has left nothing behind
    });
  });
}
