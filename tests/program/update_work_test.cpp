// Muon's work: which rank computes which matrix, and what an update sends.
#include "strategies/program/update_work.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/models/models.hpp"
#include "strategies/catalog.hpp"
#include "strategies/optimizer/matrix_rounds.hpp"

using namespace runner;

namespace {

using Shapes = std::vector<std::vector<int64_t>>;

/// Two layers, each with four matrices.
ModelSpec model() {
  Recipe::Model model;
  model.name = "gpt";
  model.n_layers = 2;
  model.dim = 64;
  model.n_heads = 4;
  model.max_seq_len = 32;
  return make_spec(model, 100, 32);
}

Job job_of(const ModelSpec& spec, const std::string& strategy, int ranks) {
  Job job;
  job.model = &spec;
  job.optimizer = find_optimizer("muon");
  job.mesh = data_mesh(ranks);
  job.local_size = ranks;
  job.options = with_defaults(find_strategy(strategy)->entry->options, nlohmann::json::object());
  return job;
}

}  // namespace

TEST_CASE("the iterations of a matrix are three products of its smaller side", "[muon]") {
  CHECK(muon_flops({4, 10}, 1) == 2.0 * 4 * 4 * 10 + 2.0 * 4 * 4 * 4 + 2.0 * 4 * 4 * 10);
  CHECK(muon_flops({10, 4}, 5) == 5 * muon_flops({4, 10}, 1));
}

TEST_CASE("ranks compute the largest matrices first, one each", "[muon]") {
  CHECK(order_of_matrices({{2, 2}, {8, 8}, {4, 8}, {8, 8}}) == std::vector<size_t>{1, 3, 2, 0});
  CHECK(order_of_matrices({}).empty());
}

TEST_CASE("ranks that share matrices divide muon's work, and ranks with copies do not", "[muon]") {
  const ModelSpec spec = model();
  const auto matrices = [&](const std::string& strategy, int ranks) {
    const Job job = job_of(spec, strategy, ranks);
    return matrices_of_update(job, find_strategy(strategy)->entry->plan(job));
  };
  CHECK(matrices("single", 1).size() == 8);
  CHECK(matrices("ddp", 2).size() == 8);
  // qkv [192, 64], up [256, 64], down [64, 256], and out [64, 64], of two layers each
  CHECK(matrices("fsdp", 2) == Shapes{{256, 64}, {256, 64}, {192, 64}, {64, 64}});
  CHECK(matrices("fsdp", 8).size() == 1);
}

TEST_CASE("a matrix is sent to its rank, and back to all", "[muon]") {
  const ModelSpec spec = model();
  const Job job = job_of(spec, "fsdp", 2);
  const auto calls = calls_of_update(job, find_strategy("fsdp")->entry->plan(job));
  REQUIRE(calls.size() == 16);
  CHECK(calls[0].kind == Collective::reduce);
  CHECK(calls[1].kind == Collective::broadcast);
  int64_t bytes = 0;
  for (const auto& call : calls) bytes += call.bytes;
  CHECK(bytes == 2 * 2 * 2 * 12 * 64 * 64);
}
