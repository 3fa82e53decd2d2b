// Converted parameters and changed gradients, as a precision plug-in asks for them: the same training under every strategy, in the memory
// that is predicted.
#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/equal_training.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/rank_check.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using torch::Tensor;

namespace {

/// Rounds to 15 levels of the largest value. The gradient passes.
class RoundsToLevels : public Conversion {
 public:
  static Tensor rounded(const Tensor& value) {
    const auto step = value.abs().amax() / 7;
    return (value / step).round_().mul_(step);
  }
  Tensor parameter(const Tensor& value, const std::string&) override {
    const auto plain = value.detach();
    return value + rounded(plain).sub_(plain);
  }
  void gradient(const Tensor&, const GradientRange&) override {}
};

/// Drops the gradient of every second element of the flattened parameter.
class DropsOddElements : public RoundsToLevels {
 public:
  void gradient(const Tensor& gradient, const GradientRange& range) override {
    const auto index = torch::arange(range.offset, range.offset + gradient.numel(), torch::kInt64);
    gradient.masked_fill_(index.remainder(2) == 1, 0);
  }
};

template <typename Kind = RoundsToLevels>
TinyRun converted_run(const std::string& pattern = "*") {
  at::set_num_threads(1);
  TinyRun run;
  run.steps = 4;
  run.converted = {.patterns = {pattern}};
  run.conversion = [] { return std::make_shared<Kind>(); };
  return run;
}

struct StrategyForm {
  std::string strategy;
  nlohmann::json options = nlohmann::json::object();
  bool recompute = false;
};

/// Each gives the same bits as ddp.
std::vector<StrategyForm> sharded_forms() {
  return {{"fsdp"},
          {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}, true},
          {"zero", {{"stage", 1}}},
          {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}, true}};
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK_THAT(a[i], WithinRel(b[i], 1e-5));
}

}  // namespace

TEST_CASE("converted parameters and changed gradients give the same training under every strategy", "[conversion]") {
  auto run = converted_run<DropsOddElements>();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  const auto single = train_tiny(run);
  CHECK(single.losses.back() != single.losses.front());
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  check_near(ddp.losses, single.losses);
  for (const auto& form : sharded_forms()) {
    INFO(run.family << ", " << form.strategy << " " << form.options.dump());
    run.strategy = form.strategy;
    run.options = form.options;
    run.recompute = form.recompute;
    check_equal(train_tiny(run), ddp);
  }
  run.strategy = "fsdp";
  run.options = {{"reduce_every_micro_batch", false}};
  run.recompute = false;
  run.pipeline = 2;
  check_near(train_tiny(run).losses, single.losses);
}

TEST_CASE("a conversion gets values in the compute dtype, also if the strategy stores another dtype", "[conversion]") {
  auto run = converted_run();
  run.precision = GENERATE(as<std::string>(), "bf16-mixed", "bf16-true");
  run.world_size = 2;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  run.strategy = "fsdp";
  const auto fsdp = train_tiny(run);
  REQUIRE(fsdp.losses.size() == ddp.losses.size());
  CHECK(fsdp.losses.front() == ddp.losses.front());
  for (size_t i = 0; i < fsdp.losses.size(); ++i) CHECK_THAT(fsdp.losses[i], WithinRel(ddp.losses[i], 5e-3));
}

TEST_CASE("recomputation of converted parameters changes no bit", "[conversion][recompute]") {
  auto run = converted_run(GENERATE(as<std::string>(), "*", "blocks.*"));
  run.tied = GENERATE(true, false);
  const auto kept = train_tiny(run);
  run.recompute = true;
  check_equal(train_tiny(run), kept);
}

TEST_CASE("blocks compute with what parameters are converted to, and the state has the parameters", "[conversion]") {
  auto run = converted_run();
  run.steps = 1;
  const auto converted = train_tiny(run);
  TinyRun plain = run;
  plain.conversion = {};
  const auto unconverted = train_tiny(plain);
  CHECK(converted.losses.front() != unconverted.losses.front());
  plain.change_source = [](const ModelSpec& spec, const ParameterSource& source) -> ParameterSource {
    return [source, specs = spec.stored()](size_t slot, int64_t offset, std::span<float> out) {
      if (!specs[slot]->converted) return source(slot, offset, out);
      auto values = torch::empty(specs[slot]->shape, torch::kFloat32);
      source(slot, 0, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
      const auto rounded = RoundsToLevels::rounded(values).contiguous();
      std::copy_n(rounded.data_ptr<float>() + offset, out.size(), out.begin());
    };
  };
  const auto rounded = train_tiny(plain);
  CHECK_THAT(converted.losses.front(), WithinRel(rounded.losses.front(), 1e-6));
  CHECK_THAT(converted.norms.front(), WithinRel(rounded.norms.front(), 1e-5));
}

TEST_CASE("a change of gradients comes before clipping and the update", "[conversion]") {
  auto run = converted_run<DropsOddElements>();
  run.optimizer = {.kind = find_optimizer("sgd")->kind, .lr = 0.1, .weight_decay = 0, .groups = {}};
  run.clip_norm = 0.1;
  run.world_size = 2;
  run.strategy = GENERATE(as<std::string>(), "ddp", "fsdp");
  run.steps = 0;
  const auto before = train_tiny(run);
  run.steps = 1;
  const auto after = train_tiny(run);
  double moved = 0;
  int64_t moved_odd = 0;
  for (const auto& [name, values] : after.state) {
    if (!name.starts_with("param/")) continue;
    const auto& old = before.state.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      const double change = static_cast<double>(values[i]) - static_cast<double>(old[i]);
      moved_odd += i % 2 == 1 && change != 0;
      moved += change * change;
    }
  }
  CHECK(moved_odd == 0);
  // The norm of the changed gradient is clipped to 0.1.
  CHECK_THAT(std::sqrt(moved), WithinRel(0.1 * 0.1, 1e-3));
}

TEST_CASE("the memory of converted parameters is as predicted", "[conversion][memory]") {
  auto run = converted_run(GENERATE(as<std::string>(), "blocks.*", "*"));
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.recompute = GENERATE(false, true);
  run.tied = false;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 3;
  for (const auto& [strategy, ranks] : {std::pair("single", 1), std::pair("fsdp", 2)}) {
    run.strategy = strategy;
    run.world_size = ranks;
    const ModelSpec spec = tiny_spec(run);
    const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
    const auto measured = measure_memory(run);
    INFO(run.strategy << ", " << run.family << ", " << run.precision << ", recompute " << run.recompute << ", "
                      << run.converted.patterns.front());
    CHECK(measured.between_steps == claim.between_steps);
    CHECK(static_cast<double>(claim.total()) >= 0.985 * static_cast<double>(measured.peak));
    // Of a llama under fsdp, 7 % more is predicted than measured. A lookup does not keep the converted table.
    const double most = run.converted.patterns.front() == "*" ? 1.1 : 1.08;
    CHECK(static_cast<double>(claim.total()) <= most * static_cast<double>(measured.peak));
    TinyRun plain = run;
    plain.converted = {};
    plain.conversion = {};
    // In mixed precision, a converted parameter takes the place of its cast.
    CHECK(claim.total() >= find_strategy(run.strategy)->entry->memory(tiny_job(plain, tiny_spec(plain))).total());
  }
}

TEST_CASE("conversions that break their rules end the run with the parameter's name", "[conversion]") {
  struct Wrong : RoundsToLevels {
    std::function<Tensor(const Tensor&)> change;
    explicit Wrong(std::function<Tensor(const Tensor&)> change) : change(std::move(change)) {}
    Tensor parameter(const Tensor& value, const std::string&) override { return change(value); }
  };
  const auto message = [](const std::function<Tensor(const Tensor&)>& change) {
    auto run = converted_run("blocks.1.*");
    run.conversion = [=] { return std::make_shared<Wrong>(change); };
    try {
      train_tiny(run);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(message([](const Tensor& value) { return value.to(torch::kBFloat16); }),
             ContainsSubstring("plugins.precision: parameter() of `blocks.1.") &&
                 ContainsSubstring("must return Float [") && ContainsSubstring("not BFloat16 ["));
  CHECK_THAT(message([](const Tensor& value) { return value.detach() * 2; }),
             ContainsSubstring("does not depend on the value for autograd"));
  CHECK_THAT(message([](const Tensor& value) {
               value.detach().mul_(2);
               return value * 1;
             }),
             ContainsSubstring("changed the value in place"));
  CHECK_THAT(message([](const Tensor&) { return Tensor(); }), ContainsSubstring("returned no tensor"));
  CHECK_THAT(message([](const Tensor&) -> Tensor { throw std::runtime_error("no levels"); }),
             ContainsSubstring("parameter() failed for the parameter `blocks.1.") && ContainsSubstring("no levels"));
}

TEST_CASE("a conversion is refused where ranks divide matrices or a backward is split", "[conversion]") {
  auto run = converted_run();
  run.world_size = run.tensor = 2;
  run.strategy = "ddp";
  const auto refusal = [&] {
    const ModelSpec spec = tiny_divided_spec(run, 0);
    return find_strategy(run.strategy)->entry->refuse(tiny_job(run, spec)).value_or("");
  };
  CHECK_THAT(refusal(), ContainsSubstring("cannot be combined with a tensor axis"));
  run.tensor = 1;
  run.pipeline = 2;
  run.accumulation = 4;
  run.schedule = PipelineSchedule::zb_h1;
  CHECK_THAT(refusal(), ContainsSubstring("use \"1f1b\""));
  run.schedule = PipelineSchedule::one_f_one_b;
  CHECK(refusal().empty());
}
