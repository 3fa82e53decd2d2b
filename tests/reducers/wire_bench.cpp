// What each way to reduce gradients sends in a step, recorded among four threads as ranks, and the formula of its paper or program.
//
// The formulas are written here a second time, from the shapes of the model alone. Prints a table, and exits with 1 if a line differs.
#include <cstdio>

#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;
using nlohmann::json;

namespace {

constexpr int64_t ranks = 4;

/// The parameters of the model, which are all in one bucket.
struct Sizes {
  std::vector<std::vector<int64_t>> shapes;
  int64_t elements = 0;  ///< of the bucket: each parameter begins at a multiple of 32 elements
};

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t padded(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

struct Line {
  std::string name, formula;
  TinyRun run;
  std::function<int64_t(const Sizes&)> bytes;
};

/// All parameters in one bucket, on four ranks.
TinyRun run_of(const std::string& strategy, json options) {
  TinyRun run;
  run.strategy = strategy;
  run.options = std::move(options);
  run.world_size = ranks;
  run.steps = 4;
  run.global_batch = ranks;
  return run;
}
/// On two nodes.
TinyRun in_nodes(TinyRun run) {
  run.local_size = ranks / 2;
  return run;
}
TinyRun hook(const std::string& name, json options = json::object()) {
  return run_of("ddp", {{"ddp_comm_hook", name}, {"ddp_comm_hook_options", std::move(options)}});
}
TinyRun bagua(const std::string& algorithm, json options = json::object()) {
  options["algorithm"] = algorithm;
  options["hierarchical"] = false;
  auto run = run_of("bagua", std::move(options));
  if (algorithm == "qadam") run.optimizer.kind = OptimizerConfig::Kind::adam;
  return run;
}

/// A matrix of n rows and m columns is sent as (n + m) r values if these are less than half of it.
int64_t power_sgd_bytes(const Sizes& sizes, int64_t rank) {
  int64_t values = 0;
  for (const auto& shape : sizes.shapes) {
    const int64_t rows = shape.front(), columns = numel(shape) / rows, r = std::min({rows, columns, rank});
    const bool compressed = shape.size() > 1 && (rows + columns) * r * 2 < rows * columns;
    values += compressed ? (rows + columns) * r : numel(shape);
  }
  return 4 * values;
}

/// A message in Bagua's 8-bit code: a header and the bytes, both in multiples of 32.
int64_t message(int64_t values) { return 32 + padded(values, 32); }
/// All chunks to the ranks that add them up, and all sums back.
int64_t chunks_and_sums(const Sizes& sizes) { return 2 * ranks * message((sizes.elements + ranks - 1) / ranks); }

int64_t adasum_bytes(const Sizes& sizes) {
  int64_t bytes = 0;
  for (int64_t group = 2; group <= ranks; group *= 2)
    bytes += 2 * 4 * (padded(sizes.elements, ranks) / group) + 3 * 8 * std::ssize(sizes.shapes);
  return bytes;
}

std::vector<Line> lines() {
  const json options = {{"start_powerSGD_iter", 0}, {"matrix_approximation_rank", 2}};
  const auto all = [](int64_t bytes) { return [=](const Sizes& sizes) { return bytes * sizes.elements; }; };
  return {
      {"ddp", "4 n", run_of("ddp", json::object()), all(4)},
      {"ddp fp16_compress", "2 n", hook("fp16_compress"), all(2)},
      {"ddp quantization_pertensor_hook", "R (n + 8)", hook("quantization_pertensor_hook"),
       [](const Sizes& sizes) { return ranks * (sizes.elements + 8); }},
      {"ddp quantization_perchannel_hook", "R (n + 8 ceil(n / 512))", hook("quantization_perchannel_hook"),
       [](const Sizes& sizes) { return ranks * (sizes.elements + 8 * ((sizes.elements + 511) / 512)); }},
      {"ddp powerSGD_hook, rank 2", "4 (sum of (rows + columns) 2, and the rest)", hook("powerSGD_hook", options),
       [](const Sizes& sizes) { return power_sgd_bytes(sizes, 2); }},
      {"bagua gradient_allreduce", "4 n", bagua("gradient_allreduce"), all(4)},
      {"bagua bytegrad", "2 R message(n / R)", bagua("bytegrad"), chunks_and_sums},
      {"bagua qadam, after the warm-up", "2 R message(n / R)", bagua("qadam", {{"warmup_steps", 2}}), chunks_and_sums},
      {"bagua decentralized, all", "4 n", bagua("decentralized"), all(4)},
      {"bagua decentralized, shift_one", "4 n", bagua("decentralized", {{"peer_selection_mode", "shift_one"}}), all(4)},
      {"bagua low_precision_decentralized", "2 message(n)", bagua("low_precision_decentralized"),
       [](const Sizes& sizes) { return 2 * message(sizes.elements); }},
      {"horovod, fp16", "2 n", run_of("horovod", {{"compression", "fp16"}}), all(2)},
      {"horovod, hierarchical, 2 nodes", "4 n (1 + 1 / (R / 2) + 1)",
       in_nodes(run_of("horovod", {{"hierarchical", true}})), all(4 + 4 / (ranks / 2) + 4)},
      {"horovod, adasum", "8 n (1/2 + 1/4 + ...) + 24 t log2 R", run_of("horovod", {{"op", "adasum"}}), adasum_bytes}};
}

Sizes sizes_of(const TinyRun& run) {
  const auto spec = tiny_spec(run);
  Sizes sizes;
  for (const auto* parameter : spec.parameters()) {
    sizes.shapes.push_back(parameter->shape);
    sizes.elements += padded(parameter->numel(), 32);
  }
  return sizes;
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const auto model = sizes_of(run_of("ddp", json::object()));
  std::printf(
      "one bucket of n = %lld elements in t = %zu parameters, R = %lld ranks; message(k) = 32 + k rounded up to 32\n\n",
      static_cast<long long>(model.elements), model.shapes.size(), static_cast<long long>(ranks));
  std::printf("%-36s %12s %12s  %s\n", "payload of one rank in one step", "recorded", "formula", "");
  bool equal = true;
  for (const auto& line : lines()) {
    const int64_t formula = line.bytes(sizes_of(line.run));
    int64_t recorded = 0;
    for (const auto& steps : record_traffic(line.run)) {  // of each rank
      recorded = 0;
      for (const auto& row : steps.back().strategy) recorded += row.payload_bytes;
      equal = equal && recorded == formula;
    }
    std::printf("%-36s %12lld %12lld  %s\n", line.name.c_str(), static_cast<long long>(recorded),
                static_cast<long long>(formula), line.formula.c_str());
  }
  std::printf("\n%s\n", equal ? "all equal, on all ranks" : "not equal");
  return equal ? 0 : 1;
}
