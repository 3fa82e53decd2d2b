// Parity: all strategies give the same losses. Sharded forms give the same bits as ddp on the same number of ranks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/zero/entry.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Sharded {
  std::string label;
  nlohmann::json options;
};

std::vector<Sharded> fsdp_forms(int world_size) {
  std::vector<Sharded> forms = {{"FULL_SHARD", {{"sharding_strategy", "FULL_SHARD"}}},
                                {"SHARD_GRAD_OP", {{"sharding_strategy", "SHARD_GRAD_OP"}}},
                                {"NO_SHARD", {{"sharding_strategy", "NO_SHARD"}}}};
  int group = world_size == 4 ? 2 : world_size;
  forms.push_back({"HYBRID_SHARD", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", group}}});
  return forms;
}

/// ZeRO's stages; stage 3 also with every parameter sharded and released after each use.
std::vector<Sharded> zero_stages() {
  return {{"stage 1", {{"stage", 1}}},
          {"stage 2", {{"stage", 2}}},
          {"stage 3", {{"stage", 3}}},
          {"stage 3, all sharded",
           {{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}};
}

/// Options that change the communication.
std::vector<Sharded> zero_forms(int world_size) {
  std::vector<Sharded> forms;
  for (int stage : {1, 2, 3}) {
    std::string label = "stage " + std::to_string(stage);
    forms.push_back({label + ", small buckets", {{"stage", stage}, {"reduce_bucket_size", 5000}}});
    forms.push_back({label + ", all-reduce and broadcast",
                     {{"stage", stage}, {"reduce_scatter", false}, {"allgather_partitions", false}}});
    forms.push_back({label + ", predivided", {{"stage", stage}, {"gradient_predivide_factor", 8.0}}});
    if (world_size == 4) forms.push_back({label + ", MiCS", {{"stage", stage}, {"mics_shard_size", 2}}});
  }
  for (int threshold : {0, 500})
    forms.push_back(
        {"stage 3, persistence " + std::to_string(threshold),
         {{"stage", 3}, {"stage3_param_persistence_threshold", threshold}, {"stage3_max_reuse_distance", 30'000}}});
  return forms;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK_THAT(a[i], Catch::Matchers::WithinRel(b[i], tolerance));
}

/// Compares losses and every tensor of the training state bit for bit.
}  // namespace

TEST_CASE("ddp and every form of fsdp follow single, and fsdp equals ddp bit for bit without clipping", "[parity]") {
  at::set_num_threads(1);
  auto family = GENERATE(as<std::string>(), "gpt", "llama");
  auto accumulation = GENERATE(1, 3);
  auto clipped = GENERATE(false, true);
  auto recompute = GENERATE(false, true);
  TinyRun run;
  run.family = family;
  run.accumulation = accumulation;
  run.recompute = recompute;
  if (clipped) run.clip_norm = 0.5;
  auto single = train_tiny(run);
  CHECK(single.losses.back() < single.losses.front());
  static EveryNth chosen(3);
  for (int world_size : {1, 2, 3, 4}) {
    if (!chosen()) continue;
    run.world_size = world_size;
    run.strategy = "ddp";
    run.options = nlohmann::json::object();
    INFO(family << ", accumulation " << accumulation << ", clipping " << clipped << ", recompute " << recompute << ", "
                << world_size << " ranks");
    auto ddp = train_tiny(run);
    check_close(ddp.losses, single.losses, 1e-5);
    check_close(ddp.norms, single.norms, 1e-4);
    run.strategy = "fsdp";
    for (const auto& form : fsdp_forms(world_size)) {
      INFO(form.label);
      run.options = form.options;
      run.options["reduce_every_micro_batch"] = false;  // like ddp: sums over micro-batches first, then over ranks
      auto fsdp = train_tiny(run);
      if (clipped)
        check_close(fsdp.losses, ddp.losses, 1e-5);
      else
        check_equal(fsdp, ddp);
      if (accumulation == 1) continue;
      run.options = form.options;
      check_close(train_tiny(run).losses, ddp.losses, 1e-5);
    }
    run.strategy = "single";
  }
}

TEST_CASE("every stage of zero equals ddp bit for bit without clipping", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.accumulation = GENERATE(1, 3);
  bool clipped = GENERATE(false, true);
  run.recompute = GENERATE(false, true);
  if (clipped) run.clip_norm = 0.5;
  static EveryNth chosen(3);
  for (int world_size : {1, 2, 3, 4}) {
    if (!chosen()) continue;
    run.world_size = world_size;
    run.strategy = "ddp";
    run.options = nlohmann::json::object();
    auto ddp = train_tiny(run);
    run.strategy = "zero";
    for (const auto& form : zero_stages()) {
      INFO(form.label << ", " << run.family << ", accumulation " << run.accumulation << ", clipping " << clipped
                      << ", recompute " << run.recompute << ", " << world_size << " ranks");
      run.options = form.options;
      auto zero = train_tiny(run);
      // Stages 2 and 3 sum over ranks first, then over micro-batches.
      if (clipped || (run.accumulation > 1 && form.options.at("stage") != 1))
        check_close(zero.losses, ddp.losses, 1e-5);
      else
        check_equal(zero, ddp);
    }
  }
}

TEST_CASE("clipping by value, untied heads, dropout under recomputation and other optimizers keep parity", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 2;
  auto check_all = [&] {
    run.strategy = "ddp";
    run.options = nlohmann::json::object();
    auto ddp = train_tiny(run);
    run.strategy = "fsdp";
    for (const auto& form : fsdp_forms(2)) {
      INFO(form.label);
      run.options = form.options;
      check_equal(train_tiny(run), ddp);
    }
    run.strategy = "zero";
    for (const auto& form : zero_stages()) {
      INFO(form.label);
      run.options = form.options;
      check_equal(train_tiny(run), ddp);
    }
    return ddp;
  };
  SECTION("clipping by value") {
    run.clip_value = 1e-3;
    check_all();
  }
  SECTION("untied heads") {
    run.tied = false;
    check_all();
  }
  SECTION("dropout: recomputation repeats the masks") {
    run.dropout = 0.2;
    auto kept = check_all();
    run.recompute = true;
    auto recomputed = check_all();
    CHECK(kept.losses == recomputed.losses);
  }
  SECTION("adam") {
    run.optimizer.kind = OptimizerConfig::Kind::adam;
    check_all();
  }
  SECTION("sgd") {
    run.optimizer.kind = OptimizerConfig::Kind::sgd;
    run.optimizer.momentum = GENERATE(0.0, 0.9);
    check_all();
  }
  SECTION("units by size and by name") {
    auto ddp = check_all();
    run.strategy = "fsdp";
    for (nlohmann::json policy :
         {nlohmann::json("size"), nlohmann::json("none"), nlohmann::json({"blocks.1", "blocks.2"})}) {
      run.options = {{"auto_wrap_policy", policy}, {"min_num_params", 10'000}};
      check_equal(train_tiny(run), ddp);
    }
  }
}

TEST_CASE("sgd with 16-bit parameters trains all of them under every strategy", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.precision = GENERATE(as<std::string>(), "bf16-true", "16-true");
  run.optimizer = {.kind = OptimizerKind::sgd, .lr = 0.5, .momentum = GENERATE(0.0, 0.9), .groups = {}};
  run.clip_norm = 1;
  INFO(run.precision << ", momentum " << run.optimizer.momentum);
  const auto single = train_tiny(run);
  TinyRun still = run;
  still.optimizer.lr = 0;
  const auto untrained = train_tiny(still);
  TinyRun in_32_bits = run;
  in_32_bits.precision = "32-true";
  const auto exact = train_tiny(in_32_bits);
  for (const auto& [name, before] : untrained.state) {
    // The steps of norms are too small for 16-bit values next to 1.
    if (!name.starts_with("param/") || name.ends_with("norm.weight")) continue;
    INFO(name);
    const auto tensor = [](const std::vector<float>& values) { return torch::tensor(values); };
    const auto expected = tensor(exact.state.at(name));
    const double missed = (tensor(single.state.at(name)) - expected).norm().item<double>();
    // The steps of some matrices are of one ulp of bfloat16, so that their rounding errors add up to a fifth of the change.
    CHECK(missed < 0.4 * (tensor(before) - expected).norm().item<double>());
  }
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  check_close(ddp.losses, single.losses, 0.02);
  run.strategy = "zero";
  for (auto form : zero_stages()) {
    form.options["communication_data_type"] = run.precision == "16-true" ? "fp16" : "bf16";
    for (const bool offloads : {false, true}) {
      INFO(form.label << (offloads ? ", offloaded" : ""));
      run.options = form.options;
      if (offloads) run.options["offload_optimizer"] = true;
      check_close(train_tiny(run).losses, single.losses, 0.02);
    }
  }
  run.strategy = "fsdp";
  for (const auto& form : fsdp_forms(2)) {
    INFO(form.label);
    run.options = form.options;
    check_close(train_tiny(run).losses, single.losses, 0.02);
  }
}

TEST_CASE("packed rows follow single under ddp, fsdp and zero, also when a rank has no row", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama", "gemma3");
  run.packed = true;
  run.global_batch = 12;
  run.short_last = 2;
  auto single = train_tiny(run);
  TinyRun whole = run;
  whole.packed = false;
  CHECK(train_tiny(whole).losses != single.losses);
  for (std::string strategy : {"ddp", "fsdp", "zero"})
    for (int world_size : {2, 3}) {
      INFO(strategy << ", " << run.family << ", " << world_size << " ranks");
      TinyRun other = run;
      other.strategy = strategy;
      other.world_size = world_size;
      other.accumulation = 2;
      // Adam turns a gradient of rounding noise into a whole step: 1.05e-5 for gemma3 without vector instructions.
      const bool vectors = at::get_cpu_capability() != "DEFAULT";
      check_close(train_tiny(other).losses, single.losses, vectors ? 1e-5 : 2e-5);
    }
}

TEST_CASE("dropout is the same on any number of ranks and micro-batches", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.dropout = 0.1;
  run.global_batch = 18;
  run.short_last = 7;  // divided unevenly
  run.packed = GENERATE(false, true);
  auto single = train_tiny(run);
  for (std::string strategy : {"single", "ddp", "fsdp"})
    for (int world_size : {1, 2, 3})
      for (int accumulation : {1, 3}) {
        if ((strategy == "single") != (world_size == 1)) continue;
        INFO(strategy << ", " << run.family << ", " << world_size << " ranks, accumulation " << accumulation);
        TinyRun other = run;
        other.strategy = strategy;
        other.world_size = world_size;
        other.accumulation = accumulation;
        check_close(train_tiny(other).losses, single.losses, 1e-5);
      }
}

TEST_CASE("zero's options for communication do not change results", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  for (int world_size : {2, 3, 4}) {
    run.world_size = world_size;
    run.strategy = "ddp";
    run.options = nlohmann::json::object();
    auto ddp = train_tiny(run);
    run.strategy = "zero";
    for (const auto& form : zero_forms(world_size)) {
      INFO(form.label << ", " << run.family << ", " << world_size << " ranks");
      run.options = form.options;
      check_equal(train_tiny(run), ddp);
    }
  }
}

TEST_CASE("ddp's options for communication do not change results", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = 3;
  run.accumulation = GENERATE(1, 3);
  auto plain = train_tiny(run);
  for (nlohmann::json options :
       {nlohmann::json{{"static_graph", true}},
        nlohmann::json{{"static_graph", true}, {"find_unused_parameters", true}},
        nlohmann::json{{"find_unused_parameters", true}}, nlohmann::json{{"gradient_as_bucket_view", false}},
        nlohmann::json{{"bucket_cap_mb", 0.02}, {"static_graph", true}}}) {
    INFO(options.dump() << ", accumulation " << run.accumulation);
    run.options = options;
    check_equal(train_tiny(run), plain);
  }
}

TEST_CASE("a short last batch is weighted by its tokens, also when a rank has none", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.steps = 3;
  run.short_last = GENERATE(1, 5);
  auto single = train_tiny(run);
  run.world_size = 3;
  for (std::string strategy : {"ddp", "dp", "fsdp", "zero"}) {
    run.strategy = strategy;
    check_close(train_tiny(run).losses, single.losses, 1e-5);
  }
}

TEST_CASE("fsdp with sharded gradients reduces after every micro-batch, as ZeRO stages 2 and 3 do", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 2;
  run.accumulation = 3;
  run.strategy = "zero";
  run.options = {{"stage", 3}};
  auto zero = train_tiny(run);
  run.strategy = "fsdp";
  run.options = nlohmann::json::object();
  auto sharded = train_tiny(run);
  check_equal(sharded, zero);
  run.options = {{"reduce_every_micro_batch", false}};
  auto once = train_tiny(run);
  CHECK(once.state != sharded.state);  // the order of sums differs
  check_close(once.losses, sharded.losses, 1e-5);
  run.options = {{"sharding_strategy", "NO_SHARD"}};
  check_equal(train_tiny(run), once);  // reducing every micro-batch would save no memory without sharding
}

namespace {

/// Every parameter's gradient in the first step, unsharded and divided by the loss scale.
std::map<std::string, torch::Tensor> first_gradients(TinyRun run) {
  struct Observer : StepObserver {
    std::map<std::string, torch::Tensor>* whole = nullptr;
    std::mutex* mutex = nullptr;
    Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) override {
      for (const auto& piece : gradients()) {
        int64_t numel = 1;
        for (int64_t size : piece.global_shape) numel *= size;
        std::lock_guard lock(*mutex);
        auto& target = whole->try_emplace(piece.name, torch::full({numel}, NAN, torch::kFloat64)).first->second;
        target.narrow(0, piece.offset, piece.numel()).copy_(piece.local.to(torch::kFloat64).div(scale));
      }
      return {false, lr_factor};
    }
  };
  std::map<std::string, torch::Tensor> whole;
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    Observer observer;
    observer.whole = &whole;
    observer.mutex = &mutex;
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.observe(&observer);
      strategy.step(tiny_input(run, world.rank, 0));
    });
  });
  return whole;
}

/// The largest relative error |a - b| / |b| of all gradients.
double largest_error(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (const auto& [name, gradient] : b)
    largest = std::max(largest, ((a.at(name) - gradient).norm() / gradient.norm()).item<double>());
  return largest;
}

}  // namespace

TEST_CASE("mixed precision: every gradient of the first step equals float64's within rounding", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.precision = "64-true";
  auto exact = first_gradients(run);
  run.world_size = 2;
  // Unit roundoff is 2^-8 for bfloat16 and 2^-11 for fp16. A gradient is rounded a few dozen times.
  for (auto [precision, most] : {std::pair("64-true", 1e-12), std::pair("32-true", 1e-5), std::pair("bf16-mixed", 0.04),
                                 std::pair("16-mixed", 0.005), std::pair("bf16-true", 0.04)}) {
    run.precision = precision;
    for (const auto& [strategy, options] :
         {Sharded{"ddp", nlohmann::json::object()}, {"fsdp", nlohmann::json::object()}, {"zero", {{"stage", 2}}}}) {
      run.strategy = strategy;
      run.options = options;
      INFO(strategy << " in " << precision << ", " << run.family << ", tied " << run.tied);
      CHECK(largest_error(first_gradients(run), exact) < most);
    }
  }
}

TEST_CASE("mixed precision: zero equals fsdp bit for bit if both reduce gradients in one dtype", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 2;
  run.precision = GENERATE(as<std::string>(), "bf16-mixed", "16-mixed", "bf16-true", "64-true");
  run.strategy = "fsdp";
  auto fsdp = train_tiny(run);
  // With reduce_dtype, fsdp reduces in the same 16-bit dtype as zero.
  if (run.precision != "64-true")
    run.options = {{"mixed_precision", {{"reduce_dtype", run.precision == "16-mixed" ? "float16" : "bfloat16"}}}};
  auto narrow = train_tiny(run);
  run.strategy = "zero";
  for (int stage : {1, 2, 3}) {
    run.options = {{"stage", stage}};
    check_equal(train_tiny(run), narrow);
    if (run.precision == "64-true") continue;
    run.options = {{"stage", stage}, {"communication_data_type", "fp32"}};
    if (run.precision != "bf16-true") check_equal(train_tiny(run), fsdp);
  }
}

TEST_CASE("micro-batches are summed in the dtype of the masters, and rounded once for the reduction", "[parity]") {
  at::set_num_threads(1);
  TinyRun run;
  run.precision = GENERATE(as<std::string>(), "bf16-mixed", "16-mixed");
  run.world_size = 2;
  run.global_batch = 64;
  run.accumulation = 32;
  run.steps = 1;
  run.strategy = "zero";
  run.options = {{"stage", 1}, {"communication_data_type", "fp32"}};
  double wide = train_tiny(run).norms.at(0);
  run.options = {{"stage", 1}};
  double narrow = train_tiny(run).norms.at(0);
  CHECK_THAT(narrow, Catch::Matchers::WithinRel(wide, 2e-4));
  run.strategy = "fsdp";
  run.options = {{"reduce_every_micro_batch", false},
                 {"mixed_precision", {{"reduce_dtype", run.precision == "16-mixed" ? "float16" : "bfloat16"}}}};
  CHECK_THAT(train_tiny(run).norms.at(0), Catch::Matchers::WithinRel(narrow, 1e-6));
}

TEST_CASE("later epochs of an accumulation schedule decide the dtype of sums over micro-batches", "[parity]") {
  TinyRun run;
  run.precision = "bf16-mixed";
  run.world_size = 2;
  ModelSpec spec = tiny_spec(run);
  auto plan = [&](int64_t stage, int64_t most) {
    TinyRun zero = run;
    zero.strategy = "zero";
    zero.options = {{"stage", stage}};
    Job job = tiny_job(zero, spec);
    job.accumulation_most = most;
    return zero_plan(job);
  };
  CHECK(plan(1, 1).accumulate == DType::bfloat16);
  CHECK(plan(1, 4).accumulate == DType::float32);
  CHECK(plan(1, 4).gradient == DType::bfloat16);
  CHECK(plan(2, 1).gradient == DType::bfloat16);
  CHECK(plan(2, 4).gradient == DType::float32);
}
