// Profiles of blocks on tensors without values, compared with the same blocks that the CPU computes.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "strategies/executor/block_recorder.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// `share`: of the computed bytes, that may differ.
void check_equal(const std::string& what, int64_t profiled, int64_t computed, double share = 0) {
  static const bool prints = std::getenv("RUNNER_BLOCK_MEMORY") != nullptr;
  const auto text = fmt::format("{}: profiled {}, computed {}", what, profiled, computed);
  const double numbers = share > 0 ? 512 : 64;  // single numbers, which one of them has in host memory
  const bool equal =
      std::abs(static_cast<double>(profiled - computed)) <= numbers + share * static_cast<double>(computed);
  if (prints && !equal) std::printf("%s\n", text.c_str());
  INFO(text);
  CHECK(equal);
}

void check_moments(const std::string& what, const std::vector<BackwardMoment>& profiled,
                   const std::vector<BackwardMoment>& computed) {
  INFO(what);
  REQUIRE(profiled.size() == computed.size());
  for (size_t i = 0; i < profiled.size(); ++i) {
    const auto name = fmt::format("{} {}", what, i);
    CHECK(profiled[i].parameter == computed[i].parameter);
    check_equal(name + " peak", profiled[i].peak, computed[i].peak);
    check_equal(name + " level", profiled[i].level, computed[i].level);
    check_equal(name + " gradient", profiled[i].gradient, computed[i].gradient);
  }
}

void check_passes(const std::string& what, const BlockProfile::Pass& profiled, const BlockProfile::Pass& computed) {
  check_equal(what + " forward", profiled.forward_peak, computed.forward_peak);
  check_equal(what + " saved", profiled.saved, computed.saved);
  check_equal(what + " waiting", profiled.waiting, computed.waiting);
  check_moments(what + " backward", profiled.backward, computed.backward);
  check_moments(what + " weight", profiled.weight, computed.weight);
}

int64_t peak_of_moments(const std::vector<BackwardMoment>& moments) {
  int64_t most = 0;
  for (const auto& moment : moments) most = std::max(most, moment.peak);
  return most;
}

void check_profiles(const TinyRun& run) {
  at::set_num_threads(1);
  const ModelSpec spec = tiny_spec(run);
  const Job job = tiny_job(run, spec);
  const auto leaf = job.precision.autocast() ? DType::float32 : job.precision.compute;
  const bool convolves = run.family == "resnet";
  const auto model = build_model(tiny_model(run), spec), again = build_model(tiny_model(run), spec);
  const auto profiled = record_blocks(*model, job, leaf), computed = record_blocks(*again, job, leaf, torch::kCPU);
  for (size_t b = 0; b < spec.blocks.size(); ++b) {
    const auto what = fmt::format("{} {} {} dropout {} packed {} {}", run.family, run.precision, run.fine_tune.method,
                                  run.dropout, run.packed, spec.blocks[b].name);
    check_equal(what + " input", profiled[b].input, computed[b].input);
    check_equal(what + " output", profiled[b].output, computed[b].output);
    // Libraries of convolutions decide whether gradients are added in place, and batch norms have copies of their statistics.
    if (convolves) {
      constexpr double share = 0.03;
      check_equal(what + " validates", profiled[b].validates_without_graph, computed[b].validates_without_graph, share);
      for (const auto pass : {&BlockProfile::plain, &BlockProfile::recomputed}) {
        check_equal(what + " saved", (profiled[b].*pass).saved, (computed[b].*pass).saved);
        check_equal(what + " backward", peak_of_moments((profiled[b].*pass).backward),
                    peak_of_moments((computed[b].*pass).backward), share);
      }
      continue;
    }
    check_equal(what + " trains", profiled[b].trains_without_graph, computed[b].trains_without_graph);
    check_equal(what + " validates", profiled[b].validates_without_graph, computed[b].validates_without_graph);
    check_passes(what + " plain", profiled[b].plain, computed[b].plain);
    check_passes(what + " recomputed", profiled[b].recomputed, computed[b].recomputed);
  }
}

TinyRun profiled_run(const std::string& family) {
  TinyRun run;
  run.family = family;
  run.tied = family.starts_with("gemma") || family_kind(family) == "encoder";
  run.dim = 64;
  run.seq_len = 192;
  run.global_batch = 4;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  return run;
}

}  // namespace

TEST_CASE("blocks without values allocate what blocks with values do, for each family and precision", "[memory]") {
  EveryNth chosen(7);
  for (const auto& family : language_model_names())
    for (const char* precision : {"32-true", "bf16-true", "bf16-mixed"})
      for (const double dropout : {0.0, 0.1})
        for (const bool packed : {false, true}) {
          if (!chosen()) continue;
          TinyRun run = profiled_run(family);
          run.precision = precision;
          run.dropout = dropout;
          run.packed = packed;
          check_profiles(run);
        }
}

TEST_CASE("blocks with adapters, frozen parameters, labels and other losses allocate without values what they do with",
          "[memory]") {
  EveryNth chosen(5);
  for (const char* family : {"gpt", "llama", "qwen3", "bert"})
    for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
      for (const char* method : {"lora", "dora"}) {
        if (!chosen()) continue;
        TinyRun run = profiled_run(family);
        run.precision = precision;
        run.fine_tune.method = method;
        run.fine_tune.rank = 4;
        run.fine_tune.targets = {"all-linear"};
        check_profiles(run);
      }
      if (!chosen()) continue;
      TinyRun frozen = profiled_run(family);
      frozen.precision = precision;
      frozen.frozen = {"embedding.*", "blocks.0.*"};
      check_profiles(frozen);
    }
}

TEST_CASE("blocks of models without tokens allocate without values what they do with", "[memory]") {
  for (const char* family : {"mlp", "vit", "resnet"})
    for (const char* precision : {"32-true", "64-true", "bf16-mixed", "bf16-true"}) {
      TinyRun run = profiled_run(family);
      run.precision = precision;
      check_profiles(run);
    }
}
