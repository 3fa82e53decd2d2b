// Horovod: its sums against ddp's, Adasum against the rule on whole vectors, bytes on the wire and in memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/reducers/base_reducer.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

TinyRun horovod(json options = json::object()) {
  TinyRun run;
  run.strategy = "horovod";
  options["bucket_cap_mb"] = 0.02;
  run.options = options;
  return run;
}

TinyRun with_ddp(TinyRun run, json options = json::object()) {
  run.strategy = "ddp";
  options["bucket_cap_mb"] = 0.02;
  run.options = options;
  return run;
}

const Entry& entry() { return *find_strategy("horovod")->entry; }

/// The updates of ranks, and Adasum's combination of them.
struct Updates {
  std::vector<std::vector<int64_t>> shapes = {{5}, {3, 3}, {7}, {1}};
  std::vector<torch::Tensor> of_ranks;

  explicit Updates(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      of_ranks.push_back(torch::randn({22}, at::make_generator<at::CPUGeneratorImpl>(100 + rank)));
  }
  /// The rule on whole vectors, tensor by tensor.
  torch::Tensor pair(const torch::Tensor& a, const torch::Tensor& b) const {
    std::vector<torch::Tensor> parts;
    int64_t begin = 0;
    for (const auto& shape : shapes) {
      const int64_t count = c10::multiply_integers(shape);
      const auto x = a.narrow(0, begin, count).to(torch::kFloat64), y = b.narrow(0, begin, count).to(torch::kFloat64);
      const auto product = torch::dot(x, y);
      parts.push_back((1 - product / (2 * torch::dot(x, x))) * x + (1 - product / (2 * torch::dot(y, y))) * y);
      begin += count;
    }
    return torch::cat(parts);
  }
  torch::Tensor tree(std::vector<torch::Tensor> list) const {
    while (list.size() > 1) {
      std::vector<torch::Tensor> next;
      for (size_t i = 0; i < list.size(); i += 2) next.push_back(pair(list[i], list[i + 1]));
      list = next;
    }
    return list.front();
  }
};

/// What one step of Adasum makes of the updates.
torch::Tensor combined(World& world, const Updates& updates, int local_size, DType wire = DType::float32) {
  Reducer::Bucket bucket;
  int64_t total = 0;
  for (const auto& shape : updates.shapes) {
    bucket.items.push_back({.offset = total, .shape = shape});
    total += c10::multiply_integers(shape);
  }
  bucket.gradients = torch::zeros({total});
  bucket.parameters = torch::arange(total).to(torch::kFloat32);
  Job job;
  job.mesh = {world.size, {{.axis = Axis::data, .size = world.size}}};
  job.local_size = local_size;
  const json options = {{"op", "adasum"}, {"hierarchical", local_size > 1}};
  const auto reducer = make_reducer(world, {.name = "adasum", .options = options, .wire = wire}, job);
  reducer->prepare({bucket}, torch::dtype(torch::kFloat32),
                   {.steps = {}, .loss_scale = {}, .share = [&world] { return 1.0 / world.size; }});
  reducer->begin(0);
  reducer->finish(0);
  bucket.parameters.add_(updates.of_ranks[static_cast<size_t>(world.rank)]);
  reducer->after_update();
  return bucket.parameters - torch::arange(total);
}

bool near(const torch::Tensor& result, const torch::Tensor& wanted, double tolerance) {
  return torch::allclose(result.to(torch::kFloat64), wanted.to(torch::kFloat64), tolerance, tolerance);
}

}  // namespace

TEST_CASE("horovod's average equals ddp bit for bit, also with a pre-division by a power of two", "[parity]") {
  at::set_num_threads(1);
  const double predivide = GENERATE(1.0, 4.0);
  for (const int ranks : {1, 2, 4}) {
    TinyRun run = horovod({{"gradient_predivide_factor", predivide}});
    run.world_size = ranks;
    const auto result = train_tiny(run), expected = train_tiny(with_ddp(run));
    CHECK(result.losses == expected.losses);
    CHECK(result.state == expected.state);
  }
}

TEST_CASE("horovod's fp16 compression equals ddp's fp16_compress bit for bit", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = horovod({{"compression", "fp16"}});
  run.world_size = 2;
  const auto result = train_tiny(run), expected = train_tiny(with_ddp(run, {{"ddp_comm_hook", "fp16_compress"}}));
  CHECK(result.losses == expected.losses);
  CHECK(result.state == expected.state);
}

TEST_CASE("horovod's sum, and bagua without average, have gradients that are the number of ranks times as large") {
  at::set_num_threads(1);
  const std::string strategy = GENERATE("horovod", "bagua");
  for (const int ranks : {1, 2, 4}) {
    TinyRun run = horovod({{"op", "sum"}});
    if (strategy == "bagua") run.options = {{"average", false}, {"bucket_cap_mb", 0.02}};
    run.strategy = strategy;
    run.world_size = ranks;
    run.steps = 2;
    run.optimizer.kind = OptimizerConfig::Kind::sgd;
    const auto result = train_tiny(run);
    auto same = with_ddp(run);
    same.optimizer.lr *= ranks;
    same.optimizer.weight_decay /= ranks;
    const auto expected = train_tiny(same);
    CHECK(result.losses[0] == expected.losses[0]);
    CHECK_THAT(result.norms[0], WithinRel(ranks * expected.norms[0], 1e-6));
    CHECK_THAT(result.losses[1], WithinRel(expected.losses[1], 1e-6));
  }
}

TEST_CASE("Adasum of two ranks: equal updates are averaged, orthogonal ones are added, and others are in between") {
  at::set_num_threads(1);
  struct Row {
    std::vector<float> left, right, wanted;
  };
  for (const Row& row : {Row{{3, 4}, {3, 4}, {3, 4}}, Row{{1, 0}, {0, 2}, {1, 2}}, Row{{1, 0}, {1, 1}, {1.25, 0.75}},
                         Row{{0, 0}, {1, 1}, {1, 1}}}) {
    Updates updates(2);
    updates.shapes = {{2}};
    updates.of_ranks = {torch::tensor(row.left), torch::tensor(row.right)};
    run_ranks(2, [&](World& world) {
      if (!torch::allclose(combined(world, updates, 1), torch::tensor(row.wanted), 1e-6, 1e-6))
        throw std::runtime_error(fmt::format("{} and {}", row.left[0], row.right[1]));
    });
  }
}

TEST_CASE("Adasum of many ranks is the tree of the rule on whole vectors, for each parameter") {
  at::set_num_threads(1);
  for (const int ranks : {1, 2, 4, 8}) {
    const Updates updates(ranks);
    const auto wanted = updates.tree(updates.of_ranks);
    run_ranks(ranks, [&](World& world) {
      if (!near(combined(world, updates, 1), wanted, 1e-5))
        throw std::runtime_error(fmt::format("rank {} of {}", world.rank, ranks));
      if (!near(combined(world, updates, 1, DType::float16), wanted, 1e-2))
        throw std::runtime_error(fmt::format("rank {} of {} in float16", world.rank, ranks));
    });
  }
}

TEST_CASE("hierarchical Adasum averages the ranks of a node, and combines nodes") {
  at::set_num_threads(1);
  for (const auto& [ranks, local] : {std::pair{4, 2}, {8, 2}, {6, 3}, {3, 3}}) {
    const Updates updates(ranks);
    std::vector<torch::Tensor> means;
    for (int node = 0; node < ranks / local; ++node) {
      auto sum = torch::zeros({22});
      for (int i = 0; i < local; ++i) sum += updates.of_ranks[static_cast<size_t>(node * local + i)];
      means.push_back(sum / local);
    }
    const auto wanted = updates.tree(means);
    run_ranks(ranks, [&, ranks = ranks, local = local](World& world) {
      if (!near(combined(world, updates, local), wanted, 1e-5))
        throw std::runtime_error(fmt::format("rank {} of {}, {} in a node", world.rank, ranks, local));
    });
  }
}

TEST_CASE("with Adasum parameters are equal on all ranks, each has its own moments, and a batch is learned") {
  at::set_num_threads(1);
  TinyRun run = horovod({{"op", "adasum"}});
  run.world_size = 4;
  run.steps = 3;
  const auto state = train_tiny(run).state;
  int64_t parameters = 0, moments = 0;
  for (const auto& [name, values] : state) {
    const auto others = state.find("replica/" + name);  // of ranks 1 to 3
    if (name.starts_with("replica/") || others == state.end()) continue;
    const bool is_moment = name.find("exp_avg") != std::string::npos;
    INFO(name);
    for (size_t rank = 1; rank < 4; ++rank) {
      const auto first = others->second.begin() + static_cast<ptrdiff_t>((rank - 1) * values.size());
      CHECK(std::equal(values.begin(), values.end(), first) != is_moment);
    }
    (is_moment ? moments : parameters) += 1;
  }
  CHECK(parameters > 0);
  CHECK(moments == 2 * parameters);
  std::vector<double> losses;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 40; ++step) {
        const auto outcome = strategy.step(tiny_input(run, world.rank, 0));
        if (world.rank == 0) losses.push_back(outcome.loss);
      }
    });
  });
  CHECK(losses.back() < 0.5 * losses.front());
}

TEST_CASE("Adasum with one rank equals ddp bit for bit", "[parity]") {
  at::set_num_threads(1);
  TinyRun run = horovod({{"op", "adasum"}});
  const auto alone = train_tiny(run), expected = train_tiny(with_ddp(run));
  CHECK(alone.losses == expected.losses);
  CHECK(alone.state == expected.state);
}

TEST_CASE("horovod multiplies learning rates by the number of ranks, unless op is sum or adasum") {
  const auto factor = [](json options) {
    TinyRun run = horovod(std::move(options));
    run.world_size = 4;
    const auto spec = tiny_spec(run);
    return entry().rate_factor(tiny_job(run, spec));
  };
  CHECK(factor(json::object()) == 4);
  CHECK(factor({{"scale_learning_rate", false}}) == 1);
  CHECK(factor({{"op", "sum"}}) == 1);
  CHECK(factor({{"op", "adasum"}}) == 1);
  CHECK(factor({{"op", "adasum"}, {"hierarchical", true}}) == 4);  // one node
  TinyRun run = horovod();
  run.world_size = 4;
  const auto spec = tiny_spec(run);
  CHECK_THAT(entry().notes(tiny_job(run, spec)).at(0), ContainsSubstring("learning rates are multiplied by 4"));
}

TEST_CASE("variables that set up Horovod get a note with the key of recipes") {
  const auto notes_with = [](const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    const TinyRun run = horovod();
    const auto spec = tiny_spec(run);
    auto notes = entry().notes(tiny_job(run, spec));
    ::unsetenv(variable);
    return notes;
  };
  CHECK(notes_with("HOROVOD_FUSION_THRESHOLD", "33554432") ==
        std::vector<std::string>{"the variable HOROVOD_FUSION_THRESHOLD is not read: set strategy.bucket_cap_mb = 32"});
  CHECK_THAT(notes_with("HOROVOD_FUSION_THRESHOLD", "0").at(0),
             ContainsSubstring("set strategy.bucket_cap_mb, the size of the buckets"));
  for (const std::string variable : {"HOROVOD_HIERARCHICAL_ALLREDUCE", "HOROVOD_TORUS_ALLREDUCE"}) {
    for (const char* off : {"0", ""}) CHECK(notes_with(variable.c_str(), off).empty());
    CHECK(notes_with(variable.c_str(), "1") ==
          std::vector<std::string>{"the variable " + variable +
                                   " is not read: set strategy.hierarchical = true, which sums gradients inside each "
                                   "node, and then over the nodes"});
  }
  CHECK(notes_with("HOROVOD_ELASTIC", "1") ==
        std::vector<std::string>{"the variable HOROVOD_ELASTIC is not read: set devices.min_nodes and "
                                 "devices.max_nodes, and start `runner run` once on each node"});
  CHECK(notes_with("HOROVOD_ELASTIC", "0").empty());
  CHECK(notes_with("HOROVOD_LOG_LEVEL", "debug") ==
        std::vector<std::string>{"the variable HOROVOD_LOG_LEVEL is not read: set the variable RUNNER_LOG, the lowest "
                                 "level of messages: info, warning or error"});
  CHECK(notes_with("HOROVOD_DYNAMIC_PROCESS_SETS", "1") ==
        std::vector<std::string>{
            "the variable HOROVOD_DYNAMIC_PROCESS_SETS is not read: process sets are named groups of ranks, which the "
            "function `setup` of a strategy in Lua makes: ctx.world:group(\"NAME\", {{0, 1}, {2, 3}}) has the "
            "collectives of ctx.world (recipes/strategies_lua/README.md)"});
  CHECK_THAT(notes_with("HOROVOD_TIMELINE", "t.json").at(0), ContainsSubstring("set run.profiler = \"trace\""));
  CHECK_THAT(notes_with("HOROVOD_CYCLE_TIME", "5").at(0), ContainsSubstring("nothing to do"));
  CHECK(notes_with("HOROVOD_RANK", "0").empty());  // of its launcher
}

namespace {

std::string refusal(int ranks, json options, int local_size) {
  TinyRun run = horovod(std::move(options));
  run.world_size = ranks;
  const auto spec = tiny_spec(run);
  Job job = tiny_job(run, spec);
  job.local_size = local_size;
  return entry().refuse(job).value_or("");
}

}  // namespace

TEST_CASE("horovod refuses gradient_predivide_factor without op = average, and adasum without a power of two") {
  CHECK_THAT(refusal(4, {{"op", "sum"}, {"gradient_predivide_factor", 2.0}}, 4),
             ContainsSubstring("for op = \"average\""));
  CHECK(refusal(4, {{"op", "adasum"}}, 4) == "");
  CHECK(refusal(6, {{"op", "adasum"}}, 3) ==
        "op = \"adasum\" needs a power of two: 6 ranks are not; use 4 or 8, or hierarchical = true, which averages the "
        "ranks of each node");
  CHECK(refusal(6, {{"op", "adasum"}}, 2) == "op = \"adasum\" needs a power of two: 6 ranks are not; use 4 or 8");
  CHECK(refusal(6, {{"op", "adasum"}, {"hierarchical", true}}, 3) == "");
  CHECK(refusal(6, {{"op", "adasum"}, {"hierarchical", true}}, 2) ==
        "op = \"adasum\" needs a power of two: 3 nodes are not; use 2 or 4");
}

TEST_CASE("the traffic and the memory of horovod are as predicted", "[recording][memory]") {
  at::set_num_threads(1);
  for (const json& options :
       {json{{"op", "average"}}, json{{"op", "adasum"}}, json{{"op", "adasum"}, {"compression", "fp16"}},
        json{{"op", "adasum"}, {"hierarchical", true}}}) {
    TinyRun run = horovod(options);
    for (const int ranks : {1, 2, 4}) {
      run.world_size = ranks;
      run.local_size = ranks == 4 ? 2 : 0;
      run.steps = 3;
      run.global_batch = ranks;
      INFO(run.options.dump() << ", " << ranks << " ranks");
      const auto claimed = claimed_traffic(run);
      for (const auto& steps : record_traffic(run))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
    run = horovod(options);
    run.local_size = 1;
    run.vocab = 503;
    run.loss_chunk_tokens = 128;
    run.dim = 128;
    run.n_layers = 2;
    run.world_size = 2;
    run.options["bucket_cap_mb"] = 0.5;
    INFO(run.options.dump());
    const auto spec = tiny_spec(run);
    const auto claim = entry().memory(tiny_job(run, spec));
    const auto measured = measure_memory(run);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
  }
}
