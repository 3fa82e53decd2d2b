// Horovod's hierarchical sum: its additions against the flat sum, predivision and casts, and bytes on the wire and in memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/selection/strategy_options.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/resumed_training.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

/// Ranks, and how many of them are on a node.
struct Nodes {
  int ranks, local;
};

TinyRun hierarchical(const Nodes& nodes, json options = json::object()) {
  TinyRun run;
  run.strategy = "horovod";
  run.world_size = nodes.ranks;
  run.local_size = nodes.local;
  options["hierarchical"] = true;
  options["bucket_cap_mb"] = 0.02;
  run.options = options;
  return run;
}

TinyRun flat(TinyRun run) {
  run.options["hierarchical"] = false;
  return run;
}

const Entry& strategy_here() { return *find_strategy("horovod")->entry; }

ParallelPlan plan_of(const TinyRun& run) {
  const auto spec = tiny_spec(run);
  return strategy_here().plan(tiny_job(run, spec));
}

/// Adds as the collectives of threads do: the first half, the second half, and then both.
torch::Tensor tree(const std::vector<torch::Tensor>& list) {
  if (list.size() == 1) return list.front();
  const auto middle = list.begin() + static_cast<ptrdiff_t>(list.size() / 2);
  return tree({list.begin(), middle}) + tree({middle, list.end()});
}

torch::Tensor tree_of_nodes(const std::vector<torch::Tensor>& list, int local) {
  std::vector<torch::Tensor> sums;
  for (auto first = list.begin(); first != list.end(); first += local) sums.push_back(tree({first, first + local}));
  return tree(sums);
}

/// Gives buckets to the reducer of one rank, and returns their sums.
class Exchange {
 public:
  Exchange(World& world, int local, const std::vector<torch::Tensor>& values, DType wire = DType::float32,
           double predivide = 1) {
    for (const auto& one : values) buckets_.emplace_back().gradients = one.clone();
    job_.mesh = {world.size, {{.axis = Axis::data, .size = world.size}}};
    job_.local_size = local;
    reducer_ =
        make_reducer(world, {.name = "hierarchical_sum", .options = {{"predivide", predivide}}, .wire = wire}, job_);
    reducer_->prepare(buckets_, torch::dtype(torch::kFloat32), {.steps = {}, .loss_scale = {}, .share = {}});
  }
  void begin() {
    for (size_t b = 0; b < buckets_.size(); ++b) reducer_->begin(b);
  }
  std::vector<torch::Tensor> sums() {
    std::vector<torch::Tensor> list;
    for (size_t b = 0; b < buckets_.size(); ++b) reducer_->finish(b);
    for (const auto& bucket : buckets_) list.push_back(bucket.gradients);
    return list;
  }

 private:
  Job job_;
  std::vector<Reducer::Bucket> buckets_;
  std::shared_ptr<Reducer> reducer_;
};

/// What a rank has of three buckets, two of which do not have equal parts for the ranks of all nodes.
std::vector<torch::Tensor> values_of(int rank) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(200 + rank));
  return {torch::randn({220}, generator), torch::randn({64}, generator), torch::randn({5}, generator)};
}

}  // namespace

TEST_CASE(
    "a hierarchical sum adds inside nodes and then over nodes; with the same additions it has the flat sum's bits",
    "[parity]") {
  at::set_num_threads(1);
  struct Row {
    Nodes nodes;
    bool same_additions;
  };
  // With 3 nodes of 2 ranks, the flat sum first adds those of ranks 0 to 2.
  for (const auto& [nodes, same] :
       {Row{{4, 2}, true}, Row{{8, 2}, true}, Row{{8, 4}, true}, Row{{6, 3}, true}, Row{{6, 2}, false}}) {
    std::vector<torch::Tensor> wanted, of_flat;
    for (size_t b = 0; b < values_of(0).size(); ++b) {
      std::vector<torch::Tensor> of_ranks;
      for (int rank = 0; rank < nodes.ranks; ++rank) of_ranks.push_back(values_of(rank)[b]);
      wanted.push_back(tree_of_nodes(of_ranks, nodes.local));
      of_flat.push_back(tree(of_ranks));
    }
    INFO(nodes.ranks << " ranks, " << nodes.local << " in a node");
    CHECK(wanted[0].equal(of_flat[0]) == same);
    CHECK(torch::allclose(wanted[0], of_flat[0], 1e-5, 1e-5));
    run_ranks(nodes.ranks, [&, nodes = nodes](World& world) {
      Exchange exchange(world, nodes.local, values_of(world.rank));
      exchange.begin();
      const auto sums = exchange.sums();
      for (size_t b = 0; b < sums.size(); ++b)
        if (!sums[b].equal(wanted[b])) throw std::runtime_error(fmt::format("rank {}, bucket {}", world.rank, b));
    });
  }
}

TEST_CASE("with fp16 a hierarchical sum is divided before the cast, and multiplied after it") {
  at::set_num_threads(1);
  const double predivide = GENERATE(4.0, 1.0);
  run_ranks(4, [&](World& world) {
    Exchange exchange(world, 2, {torch::full({9}, 40'000.0f)}, DType::float16, predivide);
    exchange.begin();
    const auto sum = exchange.sums().front();  // two of them are above the largest number of float16
    const bool right = predivide == 4 ? sum.equal(torch::full({9}, 160'000.0f)) : sum.isinf().all().item<bool>();
    if (!right) throw std::runtime_error(fmt::format("{} with {}", sum[0].item<float>(), predivide));
  });
}

TEST_CASE("the later exchanges of a bucket start when the next buckets begin", "[recording]") {
  at::set_num_threads(1);
  std::mutex mutex;
  std::map<std::string, int> calls;
  run_ranks(4, [&](World& world) {
    world.trace->observe([&, rank = world.rank](const CollectiveCall& call) {
      std::lock_guard lock(mutex);
      if (rank == 3) ++calls[name_of(call.operation.kind)];
    });
    Exchange exchange(world, 2, values_of(world.rank));
    exchange.begin();
    if (world.rank == 3) {
      std::lock_guard lock(mutex);
      const std::map<std::string, int> begun = {{"reduce_scatter", 3}, {"all_reduce", 2}, {"all_gather", 1}};
      if (calls != begun) throw std::runtime_error("not as many calls");
    }
    (void)exchange.sums();
  });
  CHECK(calls == std::map<std::string, int>{{"reduce_scatter", 3}, {"all_reduce", 3}, {"all_gather", 3}});
}

TEST_CASE("two nodes of two ranks train as one node of four, bit for bit", "[parity]") {
  at::set_num_threads(1);
  auto run = hierarchical({.ranks = 4, .local = 2},
                          GENERATE(json::object(), json{{"op", "sum"}}, json{{"gradient_predivide_factor", 3.0}}));
  run.accumulation = GENERATE(1, 3);
  run.precision = GENERATE(as<std::string>(), "32-true", "16-mixed");
  run.clip_norm = 0.5;
  INFO(run.options.dump() << ", " << run.precision << ", " << run.accumulation << " micro-batches");
  REQUIRE(plan_of(run).reducer.name == "hierarchical_sum");
  REQUIRE(plan_of(flat(run)).reducer.name.empty());
  const auto result = train_tiny(run), expected = train_tiny(flat(run));
  CHECK(result.losses == expected.losses);
  CHECK(result.norms == expected.norms);
  CHECK(result.state == expected.state);
}

TEST_CASE("three nodes of two ranks train as one node of six up to rounding, with uneven rows", "[parity]") {
  at::set_num_threads(1);
  auto run = hierarchical({.ranks = 6, .local = 2});
  run.short_last = 7;
  const auto result = train_tiny(run), expected = train_tiny(flat(run));
  REQUIRE(result.losses.size() == expected.losses.size());
  CHECK(result.losses[0] == expected.losses[0]);
  CHECK_THAT(result.norms[0], WithinRel(expected.norms[0], 1e-6));
  for (size_t i = 1; i < result.losses.size(); ++i) CHECK_THAT(result.losses[i], WithinRel(expected.losses[i], 1e-5));
}

TEST_CASE("with fp16 the sums of nodes are rounded, and a training is near the flat one", "[parity]") {
  at::set_num_threads(1);
  const auto run = hierarchical({.ranks = 4, .local = 2}, {{"compression", "fp16"}});
  const auto result = train_tiny(run), expected = train_tiny(flat(run));
  CHECK(result.losses[0] == expected.losses[0]);
  CHECK(result.state != expected.state);
  CHECK_THAT(result.norms[0], WithinRel(expected.norms[0], 1e-3));
  CHECK_THAT(result.losses.back(), WithinRel(expected.losses.back(), 1e-3));
}

TEST_CASE("a resumed training with hierarchical sums has the same bits, also on other nodes", "[parity]") {
  at::set_num_threads(1);
  const auto run = hierarchical({.ranks = 4, .local = 2});
  const auto expected = train_tiny(run);
  for (const auto& second : {run, flat(run)}) {
    const auto result = train_resumed(run, second, 2);
    CHECK(result.state == expected.state);
    CHECK(std::equal(result.losses.begin(), result.losses.end(), expected.losses.begin() + 2));
  }
}

TEST_CASE("on one node, or with one rank in each, `hierarchical` changes nothing, and a note says so") {
  const auto notes = [](const TinyRun& run) {
    const auto spec = tiny_spec(run);
    return idle_options(run.options, strategy_here(), tiny_job(run, spec));
  };
  for (const Nodes& nodes : {Nodes{4, 4}, Nodes{4, 1}, Nodes{1, 1}}) {
    const auto run = hierarchical(nodes);
    CHECK(notes(run) == std::vector<std::string>{"`hierarchical`: nothing to do here: it needs several nodes with "
                                                 "several ranks each, or op = \"adasum\""});
    CHECK_FALSE(plan_of(run).own_reducer);
    CHECK(claimed_traffic(run) == claimed_traffic(flat(run)));
  }
  CHECK(notes(hierarchical({.ranks = 4, .local = 2})).empty());
  CHECK(notes(hierarchical({.ranks = 4, .local = 4}, {{"op", "adasum"}})).empty());
}

TEST_CASE("`hierarchical` is refused with axes other than data") {
  auto run = hierarchical({.ranks = 4, .local = 2});
  run.tensor = 2;
  const auto spec = tiny_spec_of_rank(run, 0);
  CHECK(strategy_here().refuse(tiny_job(run, spec)).value_or("") ==
        "`hierarchical` sums the gradients of complete models and rows, so it cannot be combined with the axes tensor, "
        "context and pipeline: remove it");
}

TEST_CASE("the traffic of hierarchical sums is as predicted", "[recording]") {
  at::set_num_threads(1);
  for (const Nodes& nodes : {Nodes{4, 2}, Nodes{6, 3}, Nodes{6, 2}, Nodes{8, 4}})
    for (const char* compression : {"none", "fp16"}) {
      auto run = hierarchical(nodes, {{"compression", compression}});
      run.steps = 2;
      run.global_batch = nodes.ranks;
      INFO(nodes.ranks << " ranks, " << nodes.local << " in a node, " << compression);
      const auto claimed = claimed_traffic(run);
      CHECK(claimed.size() == 3);
      for (const auto& steps : record_traffic(run))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
}

TEST_CASE("the memory of hierarchical sums is as predicted: equal between steps, within 3 % at the peak", "[memory]") {
  at::set_num_threads(1);
  for (const Nodes& nodes : {Nodes{4, 2}, Nodes{6, 3}})
    for (const char* compression : {"none", "fp16"}) {
      auto run = hierarchical(nodes, {{"compression", compression}});
      run.vocab = 503;
      run.loss_chunk_tokens = 128;
      run.dim = 128;
      run.n_layers = 2;
      run.options["bucket_cap_mb"] = 0.5;
      INFO(nodes.ranks << " ranks, " << nodes.local << " in a node, " << compression);
      const auto spec = tiny_spec(run);
      const auto claim = strategy_here().memory(tiny_job(run, spec));
      const auto measured = measure_memory(run);
      CHECK(measured.between_steps == claim.between_steps);
      CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
    }
}
