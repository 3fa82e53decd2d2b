// Learning from earlier runs on simulated machines with unknown speeds of their parts: the error of predictions for new
// shapes after a number of runs, and how often the error bar is right.
#include "runner/selection/learning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "runner/models/models.hpp"
#include "runner/selection/strategy_options.hpp"

using namespace runner;
using Catch::Approx;

namespace {

using Random = std::mt19937_64;

template <class T>
T pick(Random& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

/// The load of one rank for a random family, shape, strategy and batch.
StepLoad random_load(Random& random, bool cuda) {
  Recipe::Model recipe;
  recipe.name = pick<std::string>(random, {"gpt", "llama"});
  recipe.n_layers = pick<int64_t>(random, {1, 2, 4, 6, 12});
  recipe.dim = pick<int64_t>(random, {64, 128, 256, 384}) * (cuda ? 8 : 1);
  recipe.n_heads = recipe.dim / 32;
  recipe.max_seq_len = pick<int64_t>(random, {32, 64, 128, 256}) * (cuda ? 8 : 1);
  recipe.tie_embeddings = random() % 2 == 0;
  const ModelSpec model = make_spec(recipe, pick<int64_t>(random, {256, 1024, 8192}), recipe.max_seq_len);
  struct Way {
    const char* strategy;
    nlohmann::json options;
  };
  const Way way = pick<Way>(random, {{"single", {}},
                                     {"ddp", nlohmann::json::object()},
                                     {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
                                     {"zero", {{"stage", 1}}}});
  Candidate candidate;
  candidate.entry = find_strategy(way.strategy)->entry;
  Job& job = candidate.job;
  job.model = &model;
  if (cuda) job.accelerator = cuda_accelerator();
  job.precision = precision_policy(cuda ? "bf16-mixed" : "32-true");
  job.local_size = candidate.entry->name == "single" ? 1 : cuda ? 8 : 2;
  job.mesh = data_mesh(job.local_size);
  job.micro_batch_size = pick<int64_t>(random, {1, 2, 4, 8});
  job.accumulation = job.accumulation_most = pick<int64_t>(random, {1, 1, 2});
  for (const auto& block : model.blocks)
    job.recompute.push_back(block.kind == BlockKind::transformer && job.micro_batch_size == 8);
  job.options = with_defaults(candidate.entry->options, way.options.is_null() ? nlohmann::json::object() : way.options);
  candidate.memory = candidate.entry->memory(job);
  return *step_load(candidate);
}

/// Loads to choose from, because the memory of each is planned for several milliseconds.
const std::vector<StepLoad>& random_loads(bool cuda) {
  static std::map<bool, std::vector<StepLoad>> made;
  auto& loads = made[cuda];
  Random random(11);
  while (loads.size() < 500) loads.push_back(random_load(random, cuda));
  return loads;
}

/// A machine whose parts cost the base rates times factors that the base does not contain.
class SimulatedMachine {
 public:
  /// `common` and `own` are standard deviations of the factors' logarithms: common to all parts, and separate for each
  /// part.
  SimulatedMachine(Rates base, double common, double own, double noise, uint64_t seed)
      : base_(std::move(base)), noise_(noise), random_(seed) {
    const double all = common * normal_(random_);
    for (auto& factor : factors_) factor = std::exp(all + own * normal_(random_));
  }
  double true_seconds(const StepLoad& load) const {
    const StepTime time = *step_time(load, base_);
    double seconds = 0;
    for (size_t part = 0; part < step_parts; ++part) seconds += factors_[part] * time.parts[part];
    return seconds;
  }
  double measure(const StepLoad& load) { return true_seconds(load) * std::exp(noise_ * normal_(random_)); }
  const Rates& base() const { return base_; }
  Random& random() { return random_; }

 private:
  Rates base_;
  double noise_;
  Random random_;
  std::normal_distribution<double> normal_;
  StepParts factors_ = {};
};

Circumstances here(int ranks = 2) {
  return {.machine = "m", .device = "cpu", .build = "1", .family = "gpt", .precision = "32-true", .local_size = ranks};
}

Circumstances circumstances_of(const StepLoad& load) { return here(load.local_size); }

struct Errors {
  double median = 0;
  double within = 0;  ///< share of the measured times within the error bar
  std::string text() const { return fmt::format("median error {:.3f}, {:.2f} within the bar", median, within); }
};

/// Errors of predictions for new shapes on forty machines, after `runs` runs on each.
Errors errors_after(int runs, bool cuda, double common, double own, double noise, double disturbed = 0) {
  const auto& loads = random_loads(cuda);
  std::vector<double> errors;
  double within = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Rates base = cuda ? *rates_of(*find_device_kind("h100-80g"), DType::bfloat16, 8) : guessed_cpu_rates(2, 1, 2);
    SimulatedMachine machine(base, common, own, noise, seed);
    std::vector<PastRun> past;
    for (int run = 0; run < runs; ++run) {
      const StepLoad load = pick(machine.random(), loads);
      double seconds = machine.measure(load);
      if (run < disturbed * runs) seconds *= 1.8;
      past.push_back({circumstances_of(load), load, seconds, 0.02});
    }
    for (int held_out = 0; held_out < 10; ++held_out) {
      const StepLoad load = pick(machine.random(), loads);
      const LearnedRates learned(base, circumstances_of(load), past);
      const StepTime time = *step_time(load, learned.rates());
      const double deviation = std::abs(machine.measure(load) / time.total() - 1);
      errors.push_back(std::abs(time.total() / machine.true_seconds(load) - 1));
      within += deviation <= learned.error(time);
    }
  }
  std::nth_element(errors.begin(), errors.begin() + static_cast<long>(errors.size() / 2), errors.end());
  return {errors[errors.size() / 2], within / static_cast<double>(errors.size())};
}

}  // namespace

TEST_CASE("after ten runs of mixed shapes, other shapes are predicted within 5 %; without runs they are far off") {
  for (double noise : {0.03, 0.05}) {
    for (bool cuda : {false, true}) {
      INFO("noise " << noise << ", cuda " << cuda);
      const double common = cuda ? 0.25 : 0.5, own = cuda ? 0.25 : 0.4;
      const Errors untaught = errors_after(0, cuda, common, own, noise);
      const Errors taught = errors_after(10, cuda, common, own, noise);
      const Errors more = errors_after(30, cuda, common, own, noise);
      INFO(untaught.text() << "; after ten runs " << taught.text() << "; after thirty " << more.text());
      CHECK(untaught.median > (cuda ? 0.15 : 0.3));
      CHECK(taught.median < 0.05);
      CHECK(more.median < taught.median);
      CHECK(taught.within > 0.6);
      CHECK(taught.within < 0.9);
    }
  }
}

TEST_CASE("two disturbed runs of ten change predictions little") {
  const Errors errors = errors_after(10, false, 0.5, 0.4, 0.03, 0.2);
  INFO(errors.text());
  CHECK(errors.median < 0.05);
}

TEST_CASE("without a run the prediction is that of the base rates, with their error") {
  Random random(3);
  const StepLoad load = random_load(random, true);
  const Rates base = *rates_of(*find_device_kind("a100-80g"), DType::bfloat16, 8);
  const LearnedRates learned(base, here(), {});
  CHECK(learned.runs() == 0);
  CHECK(step_time(load, learned.rates())->total() == step_time(load, base)->total());
  CHECK(learned.error(*step_time(load, learned.rates())) >= base.error);
}

TEST_CASE("a shape that was run before is predicted as measured, with an error that shrinks but stays positive") {
  Random random(5);
  const StepLoad load = random_load(random, false);
  const Rates base = guessed_cpu_rates(2, 1, 2);
  const double seconds = 3 * step_time(load, base)->total();
  auto after = [&](size_t runs) {
    return LearnedRates(base, circumstances_of(load),
                        std::vector<PastRun>(runs, {circumstances_of(load), load, seconds, 0.1}));
  };
  const LearnedRates once = after(1), often = after(50);
  const StepTime first = *step_time(load, once.rates()), last = *step_time(load, often.rates());
  CHECK(first.total() == Approx(seconds).epsilon(0.05));
  CHECK(last.total() == Approx(seconds).epsilon(0.01));
  CHECK(often.error(last) < once.error(first));
  CHECK(often.error(last) > 0.04);
  CHECK(often.runs() == 50);

  // A run of the same load on a busy machine does not change the result of the run on a quiet one, in any order.
  const PastRun quiet{circumstances_of(load), load, seconds, 0.02}, busy{circumstances_of(load), load, 3 * seconds, 2};
  for (const auto& runs : {std::vector{quiet, busy}, std::vector{busy, quiet}}) {
    const LearnedRates both(base, circumstances_of(load), runs);
    CHECK(step_time(load, both.rates())->total() == Approx(seconds).epsilon(0.05));
  }
}

TEST_CASE("the weight of a run depends on the similarity of its circumstances") {
  const Circumstances now = here();
  CHECK(doubt(now, now) == 0);
  auto with = [&](auto change) {
    Circumstances other = now;
    change(other);
    return doubt(other, now);
  };
  CHECK_FALSE(with([](auto& other) { other.machine = "another"; }));
  CHECK_FALSE(with([](auto& other) { other.precision = "bf16-mixed"; }));
  CHECK_FALSE(with([](auto& other) { other.device = "h100-80g"; }));
  CHECK(with([](auto& other) { other.build = "2"; }) > 0.04);
  CHECK(with([](auto& other) { other.threads = 2; }) > with([](auto& other) { other.build = "2"; }));
  Circumstances gpu = now, far = now;
  gpu.device = far.device = "h100-80g";
  far.machine = "another";
  CHECK(doubt(far, gpu) > 0);

  Random random(7);
  const StepLoad load = random_load(random, false);
  const Rates base = guessed_cpu_rates(2, 1, 2);
  auto learned_in = [&](const std::string& build) {
    Circumstances there = now;
    there.build = build;
    return LearnedRates(base, now, {{there, load, 2 * step_time(load, base)->total(), 0.02}});
  };
  const LearnedRates same = learned_in(now.build), other = learned_in("older");
  CHECK(same.error(*step_time(load, same.rates())) < other.error(*step_time(load, other.rates())));
}

TEST_CASE("a load and its circumstances survive a round trip through JSON; unknown kinds of work are rejected") {
  Random random(11);
  const StepLoad load = random_load(random, true);
  const auto json = nlohmann::json::parse(load.to_json().dump());
  auto back = StepLoad::from_json(json);
  REQUIRE(back);
  CHECK(back->to_json() == load.to_json());
  auto renamed = json;
  renamed["work"].erase("steps");
  renamed["work"]["strides"] = 1;
  CHECK_FALSE(StepLoad::from_json(renamed));
  renamed["work"].erase("strides");
  CHECK_FALSE(StepLoad::from_json(renamed));
  CHECK(Circumstances::from_json(here().to_json()).to_json() == here().to_json());
}

TEST_CASE("a calibration with a wrong small error is corrected as well") {
  Rates base = guessed_cpu_rates(2, 1, 2);
  base.error = 0.05;
  SimulatedMachine slower(base, 0, 0, 0.03, 23);
  std::vector<PastRun> past;
  for (int run = 0; run < 10; ++run) {
    const StepLoad load = random_load(slower.random(), false);
    past.push_back({circumstances_of(load), load, 1.6 * slower.measure(load), 0.02});
  }
  const StepLoad load = random_load(slower.random(), false);
  const LearnedRates learned(base, circumstances_of(load), past);
  CHECK(step_time(load, learned.rates())->total() == Approx(1.6 * slower.true_seconds(load)).epsilon(0.08));
}
