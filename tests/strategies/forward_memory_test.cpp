// The memory that is predicted for the forward of single blocks that keep nothing for a backward, compared with the counting
// allocator. RUNNER_FORWARD_MEMORY=1 prints the error of each block.

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/program/block_memory.hpp"
#include "tests/support/mixed_precision.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

MicroBatch on_cpu(const HostBatch& batch) {
  MicroBatch copy{.rows = batch.rows};
  for (const auto& field : batch.fields) {
    std::vector<int64_t> shape = {batch.rows};
    shape.insert(shape.end(), field.spec.row.begin(), field.spec.row.end());
    copy.fields.push_back(torch::empty(shape, scalar_type(field.spec.type)));
    std::memcpy(copy.fields.back().data_ptr(), field.bytes.data(), field.bytes.size());
  }
  copy.host_fields = copy.fields;
  return copy;
}

/// Bytes of each block's forward: of its input and all that it allocates.
std::vector<int64_t> measured_forwards(const TinyRun& run, const ModelSpec& spec, bool trains) {
  const auto precision = precision_policy(run.precision);
  const auto leaf = precision.autocast() ? torch::kFloat32 : scalar_type(precision.compute);
  const auto model = build_model(tiny_model(run), spec);
  const auto parameters = spec.parameters();
  for (size_t slot = 0; slot < parameters.size(); ++slot)
    model->slots[slot] = torch::rand(parameters[slot]->shape).sub_(0.5).mul_(0.1).to(leaf);
  const auto batch = on_cpu(tiny_batch(run, 0, run.global_batch));
  const ForwardContext context{&batch, trains, /*dropout_key=*/1};
  torch::NoGradGuard no_grad;
  std::vector<int64_t> bytes;
  MemoryAccount account;
  AccountScope scope(account);
  const MixedPrecision mixed(precision.autocast());
  for (const bool measures : {false, true}) {  // the first pass makes tables of positions
    torch::Tensor x;
    for (const auto& block : model->blocks) {
      const auto before = account.current() - (x.defined() ? static_cast<int64_t>(x.nbytes()) : 0);
      account.reset_peak();
      x = block->forward(x, context);
      if (measures) bytes.push_back(account.peak() - before);
    }
  }
  return bytes;
}

void check_forwards(const TinyRun& run, bool trains) {
  static const bool prints = std::getenv("RUNNER_FORWARD_MEMORY") != nullptr;
  const ModelSpec spec = tiny_spec(run);
  const Job job = tiny_job(run, spec);
  const auto leaf = job.precision.autocast() ? DType::float32 : job.precision.compute;
  const auto measured = measured_forwards(run, spec, trains);
  const BlockMemory memory(job, leaf);
  // Of attention in tiles, the prediction is for sequences as long as a row.
  const auto model = tiny_model(run);
  const bool tiles_of_sequences = run.packed && (model.sliding_window > 0 || model.attention_softcap > 0);
  for (size_t block = 0; block < spec.blocks.size(); ++block) {
    const auto claimed = memory.forward_without_graph(block, trains);
    const double error = static_cast<double>(claimed) / static_cast<double>(measured[block]) - 1;
    const auto text = fmt::format(
        "{} {} {} {}, {} heads, {} of {} tokens, dropout {}, trains {}, packed {}: {:+.2f} %, claimed {}, "
        "measured {}",
        run.family, spec.blocks[block].name, run.precision, run.fine_tune.method, run.n_heads, run.global_batch,
        run.seq_len, run.dropout, trains, run.packed, 100 * error, claimed, measured[block]);
    if (prints) std::printf("%s\n", text.c_str());
    INFO(text);
    CHECK(error >= -0.01);
    if (!tiles_of_sequences) CHECK(error <= 0.03);
  }
}

TinyRun sized(const std::string& family) {
  TinyRun run;
  run.family = family;
  run.tied = family.starts_with("gemma") || family_kind(family) == "encoder";
  run.dim = 64;
  run.n_layers = 2;
  run.seq_len = 64;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  return run;
}

/// Tokens of a row, rows, and heads.
struct Size {
  int64_t seq_len, rows, heads;
};

void check_families(const std::vector<const char*>& precisions, const std::vector<Size>& sizes) {
  at::set_num_threads(1);
  for (const auto& family : language_model_names())
    for (const char* precision : precisions)
      for (const double dropout : {0.0, 0.1})
        for (const bool packed : {false, true})
          for (const auto& [seq_len, rows, heads] : sizes) {
            TinyRun run = sized(family);
            run.precision = precision;
            run.dropout = dropout;
            run.packed = packed;
            run.n_heads = heads;
            run.seq_len = seq_len;
            run.global_batch = rows;
            if (dropout > 0) check_forwards(run, /*trains=*/true);
            check_forwards(run, /*trains=*/false);
          }
}

}  // namespace

TEST_CASE("the forward of a block without a graph needs as much memory as is predicted", "[memory][families]") {
  check_families({"32-true", "bf16-true"}, {{192, 4, 4}});
}

TEST_CASE("the forward of a block without a graph needs as much memory as is predicted, for more shapes",
          "[.nightly][memory]") {
  check_families({"32-true", "64-true", "bf16-mixed", "bf16-true"}, {{64, 12, 4}, {192, 12, 4}, {300, 4, 2}});
}

TEST_CASE("the forward of a block with adapters needs as much memory in validation as is predicted",
          "[memory][fine_tune]") {
  at::set_num_threads(1);
  for (const char* family : {"gpt", "llama", "qwen3", "gpt_neox", "bert"})
    for (const char* method : {"lora", "dora"})
      for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
        for (const char* targets : {"all-linear", "*.mlp.*", "*attention.*"}) {
          TinyRun run = sized(family);
          run.precision = precision;
          run.fine_tune.method = method;
          run.fine_tune.rank = 4;
          run.fine_tune.targets = {targets};
          check_forwards(run, /*trains=*/false);
        }
}
