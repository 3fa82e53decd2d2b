// zb_h1, whose backwards have two parts, trains with the bits of 1f1b: the same kernels compute the same sums in the same order.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "strategies/program/program.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

TinyRun pipelined(const std::string& family) {
  at::set_num_threads(1);
  TinyRun run;
  run.family = family;
  run.n_layers = 4;
  run.pipeline = run.world_size = 2;
  run.accumulation = 4;
  run.global_batch = 8;
  run.steps = 3;
  run.clip_norm = 0.5;
  return run;
}

void check_bits(TinyRun run) {
  const auto whole = train_tiny(run);
  CHECK(std::isfinite(whole.losses.back()));
  run.schedule = PipelineSchedule::zb_h1;
  check_equal_with_norms(train_tiny(run), whole);
}

}  // namespace

TEST_CASE("zb_h1 has the bits of 1f1b", "[pipeline][bits]") {
  auto run = pipelined(GENERATE(as<std::string>(), "gpt", "llama", "qwen3", "gemma2", "gpt_neox"));
  run.pipeline = run.world_size = GENERATE(2, 4);
  run.accumulation = GENERATE(1, 4);
  run.tied = GENERATE(true, false);
  run.recompute = GENERATE(false, true);
  INFO(run.family << " on " << run.pipeline << " ranks, micro-batches " << run.accumulation << ", tied " << run.tied
                  << ", recompute " << run.recompute);
  check_bits(run);
}

TEST_CASE("zb_h1 has the bits of 1f1b in every precision, with dropout and with packed rows", "[pipeline][bits]") {
  auto run = pipelined(GENERATE(as<std::string>(), "gpt", "llama"));
  run.precision = GENERATE(as<std::string>(), "bf16-mixed", "bf16-true", "64-true");
  run.recompute = GENERATE(false, true);
  run.dropout = GENERATE(0.0, 0.1);
  run.packed = run.dropout == 0;
  INFO(run.family << ", " << run.precision << ", recompute " << run.recompute << ", dropout " << run.dropout);
  check_bits(run);
}

TEST_CASE("zb_h1 has the bits of 1f1b on meshes", "[pipeline][tensor][bits]") {
  auto run = pipelined(GENERATE(as<std::string>(), "gpt", "llama", "gpt_neox"));
  run.sequence_parallel = GENERATE(true, false);
  run.recompute = GENERATE(false, true);
  struct Line {
    std::string strategy;
    int data, tensor;
    nlohmann::json options = nlohmann::json::object();
  };
  for (const auto& line : {Line{"single", 1, 2}, Line{"ddp", 2, 1}, Line{"ddp", 2, 2}, Line{"fsdp", 2, 2},
                           Line{"zero", 2, 1, {{"stage", 1}}}}) {
    run.strategy = line.strategy;
    run.options = line.options;
    run.tensor = line.tensor;
    run.world_size = run.pipeline * line.data * line.tensor;
    run.global_batch = 8 * line.data;
    INFO(run.family << ", sequence parallel " << run.sequence_parallel << ", recompute " << run.recompute << ", "
                    << line.strategy << ", data " << line.data << " x tensor " << line.tensor);
    check_bits(run);
  }
}

TEST_CASE("zb_h1 has the bits of 1f1b in fine-tuning", "[pipeline][fine_tune][bits]") {
  auto run = pipelined("llama");
  run.recompute = GENERATE(false, true);
  const auto method = GENERATE(as<std::string>(), "lora", "dora", "nf4", "frozen", "half frozen");
  INFO(method << ", recompute " << run.recompute);
  if (method == "frozen")
    run.frozen = {"embedding.*", "blocks.0.*"};
  else if (method == "half frozen")
    run.frozen = {"*.attention.wq.*", "*.mlp.w2.*", "blocks.3.*"};
  else
    run.fine_tune.method = method == "nf4" ? "lora" : method;
  run.fine_tune.rank = 4;
  if (method == "nf4") run.fine_tune.quantization = "nf4";
  for (const double dropout : {0.0, 0.1}) {
    if (run.fine_tune.method == "lora" || run.fine_tune.method == "dora") run.fine_tune.dropout = dropout;
    check_bits(run);
  }
}

TEST_CASE("the second part of a split backward is listed for blocks with trained matrices, and reductions follow it",
          "[pipeline]") {
  auto run = pipelined("gpt");
  run.schedule = PipelineSchedule::zb_h1;
  run.strategy = "fsdp";
  run.world_size = 4;
  run.accumulation = 2;
  run.n_layers = 1;
  run.frozen = {"blocks.0.attention.*"};
  const auto lines = [&](int rank) {
    const auto spec = tiny_spec_of_rank(run, rank);
    const Job job = tiny_job(run, spec);
    std::vector<std::string> list;
    for (const auto& i : step_program(spec, find_strategy(run.strategy)->entry->plan(job), job.recompute, 2))
      if (i.op == Op::backward_input || i.op == Op::backward_weight || i.op == Op::backward || i.op == Op::start_reduce)
        list.push_back(to_text(i));
    return list;
  };
  // Rank 0 of the pipeline has the embedding and a frozen attention, the other one the feed-forward and the head.
  CHECK(lines(0) ==
        std::vector<std::string>{"backward_input block 1 of micro-batch 0", "backward_input block 0 of micro-batch 0",
                                 "backward_input block 1 of micro-batch 1", "backward_input block 0 of micro-batch 1",
                                 "start_reduce unit 1", "start_reduce unit 0 over the stages that share a parameter",
                                 "start_reduce unit 0"});
  CHECK(lines(2) ==
        std::vector<std::string>{"backward_input block 1 of micro-batch 0", "backward_input block 0 of micro-batch 0",
                                 "backward_input block 1 of micro-batch 1", "backward_input block 0 of micro-batch 1",
                                 "backward_weight block 0 of micro-batch 0", "backward_weight block 0 of micro-batch 1",
                                 "start_reduce unit 0", "start_reduce unit 1 over the stages that share a parameter",
                                 "start_reduce unit 1"});
}
