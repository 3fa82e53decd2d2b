// Rates: fitted to generated steps, and predictions as sums of their parts.
#include "runner/selection/calibration.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "runner/models/models.hpp"

using namespace runner;
using Catch::Approx;

namespace {

constexpr std::array<double, work_kinds> true_rates = {1e-11, 2e-9, 3e-11, 1e-9, 2e-9, 1e-4,
                                                       2e-4,  1e-9, 0,     1e-5, 1e-9, 1e-3};

std::vector<MeasuredStep> made_steps() {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> log_scale(-1, 1);
  std::vector<MeasuredStep> steps;
  for (int i = 0; i < 30; ++i) {
    StepWork work = {};
    double seconds = 0;
    for (size_t k = 0; k < work_kinds; ++k) {
      if (true_rates[k] == 0) continue;
      work[k] = k + 1 == work_kinds ? 1 : 1e-2 / true_rates[k] * std::pow(10.0, log_scale(random));
      seconds += work[k] * true_rates[k];
    }
    steps.push_back({work, seconds + 5e-3, 5e-3});
  }
  return steps;
}

Recipe::Model tiny() {
  Recipe::Model model;
  model.name = "gpt";
  model.n_layers = 2;
  model.dim = 64;
  model.n_heads = 4;
  model.max_seq_len = 32;
  model.tie_embeddings = false;
  return model;
}

}  // namespace

TEST_CASE("the fit recovers the rates that generated the steps") {
  Fit fit = fit_rates(made_steps());
  for (size_t k = 0; k < work_kinds; ++k) {
    INFO(name_of(static_cast<Work>(k)));
    CHECK(fit.seconds[k] == Approx(true_rates[k]).epsilon(0.01));
  }
  CHECK(fit.worst_error < 1e-3);
}

TEST_CASE("a few disturbed steps change the predictions little") {
  auto steps = made_steps();
  for (size_t i = 0; i < steps.size(); i += 6) steps[i].seconds *= 1.5;
  Fit fit = fit_rates(steps);
  for (const auto& [work, seconds, elsewhere] : made_steps()) {
    double predicted = elsewhere;
    for (size_t k = 0; k < work_kinds; ++k) predicted += work[k] * fit.seconds[k];
    CHECK(predicted == Approx(seconds).epsilon(0.1));
  }
}

TEST_CASE("no kind of work has a negative cost, for any measurements") {
  auto steps = made_steps();
  for (size_t i = 0; i < steps.size(); i += 2) steps[i].seconds *= 0.5;
  for (double seconds : fit_rates(steps).seconds) CHECK(seconds >= 0);
}

TEST_CASE("work of a step: products count three times the forward pass, four times if recomputed") {
  auto model = make_spec(tiny(), 100, 32);
  Job job;
  job.model = &model;
  job.micro_batch_size = 2;
  job.accumulation = 3;
  auto flops = [&] { return step_work(job, nullptr, {}, {})[static_cast<size_t>(Work::product_flops)]; };
  const double tokens = 2 * 32, block = 2.0 * 12 * 64 * 64, head = 2.0 * 64 * 100;
  CHECK(flops() == Approx(3 * 3 * tokens * (2 * block + head)));
  job.recompute = {false, true, true, false, false, false};
  const double last = 2.0 * 4 * 64 * 64;  // the layer's last product, which a recomputation leaves out
  CHECK(flops() == Approx(3 * tokens * (4 * block - last + 3 * block + 3 * head)));
  CHECK(step_work(job, nullptr, {}, {})[static_cast<size_t>(Work::recomputations)] == 3);
}

TEST_CASE("work of a step: a classifier of texts has the outputs of one token of each text") {
  auto settings = tiny();
  settings.num_labels = 3;
  const auto model = make_spec(settings, 100, 32);
  Job job;
  job.model = &model;
  job.micro_batch_size = 2;
  const auto work = step_work(job, nullptr, {}, {});
  CHECK(work[static_cast<size_t>(Work::logits)] == 3 * 2 * 3);
  CHECK(work[static_cast<size_t>(Work::product_flops)] == Approx(3 * 2 * (32 * 2 * 2.0 * 12 * 64 * 64 + 2.0 * 64 * 3)));
}

TEST_CASE("work of a step: frozen weights have no gradients, and blocks before the first trained one only a forward") {
  auto recipe = tiny();
  recipe.frozen = {"embedding.*", "blocks.0.*", "blocks.1.mlp.up.*"};
  auto model = make_spec(recipe, 100, 32);
  Job job;
  job.model = &model;
  const double tokens = 32, block = 2.0 * 12 * 64 * 64, head = 2.0 * 64 * 100, up = 2.0 * 4 * 64 * 64;
  CHECK(step_work(job, nullptr, {}, {})[static_cast<size_t>(Work::product_flops)] ==
        Approx(tokens * (block + 3 * block - up + (recipe.tie_embeddings ? 2 : 3) * head)));
}

TEST_CASE("the time of a collective is interpolated between measured points, and proportional beyond them") {
  CollectiveCurve curve{{{1000, 1e-5}, {10'000, 4e-5}}};
  CHECK(curve.seconds(10) == 1e-5);
  CHECK(curve.seconds(5500) == Approx(2.5e-5));
  CHECK(curve.seconds(100'000) == Approx(4e-4));
}

TEST_CASE("the measured time of collectives is not counted as other work") {
  Calibration calibration{2, 1, 2, 0, {}};
  calibration.points.push_back(
      {{"what", "collective"}, {"name", "all_reduce"}, {"ranks", 2}, {"bytes", 1000}, {"seconds", 2e-3}});
  auto traffic = nlohmann::json::array({{{"collective", "all_reduce"}, {"calls", 2}, {"bytes", 2000}}});
  for (const auto& [work, seconds, elsewhere] : made_steps())
    calibration.points.push_back({{"what", "step"},
                                  {"family", "gpt"},
                                  {"precision", "32-true"},
                                  {"work", work},
                                  {"traffic", traffic},
                                  {"seconds", seconds - elsewhere + 4e-3}});
  auto steps = steps_of(calibration, "gpt", "32-true");
  REQUIRE(steps.size() == 30);
  CHECK(steps[0].elsewhere == Approx(4e-3));
  CHECK(fit_rates(steps).worst_error < 1e-3);
  calibration.points.back()["traffic"][0]["collective"] = "all_gather";  // there is no measurement of it
  CHECK(steps_of(calibration, "gpt", "32-true").size() == 29);
}

TEST_CASE("the time of collectives for unmeasured numbers of ranks is scaled from the nearest number") {
  Rates rates;
  rates.curves[{"all_reduce", 2}].points = {{1000, 2e-3}};
  rates.curves[{"all_reduce", 8}].points = {{1000, 9e-3}};
  auto seconds = [&](const char* collective, int ranks) {
    return communication_seconds({{collective, 2, 2000, 0, ranks}}, ranks, rates);
  };
  CHECK(seconds("all_reduce", 2) == Approx(4e-3));
  CHECK(seconds("all_reduce", 3) == Approx(6e-3));
  CHECK(seconds("all_reduce", 6) == Approx(13.5e-3));
  CHECK_FALSE(seconds("all_gather", 2));
}

TEST_CASE("rates are those of the fit, and their error is smaller for a measured number of ranks") {
  Calibration calibration{2, 1, 4, 0, {{{"what", "copy"}, {"bytes_per_s", 1e6}}}};
  calibration.points.push_back({{"what", "product"}, {"flops_per_s", 5e10}});
  for (const char* precision : {"32-true", "bf16-mixed"})
    for (const auto& [work, seconds, elsewhere] : made_steps())
      calibration.points.push_back({{"what", "step"},
                                    {"family", "gpt"},
                                    {"precision", precision},
                                    {"work", work},
                                    {"seconds", seconds - elsewhere}});
  auto halves = calibrated_rates({calibration}, "gpt", "bf16-mixed", 2, 1);
  REQUIRE(halves);
  CHECK(halves->seconds[static_cast<size_t>(Work::copied_bytes)] == 0);
  CHECK(halves->peak_flops == 0);  // the measured product was fp32
  CHECK(halves->error == 0.05);
  auto plain = calibrated_rates({calibration}, "gpt", "32-true", 3, 1);
  REQUIRE(plain);
  CHECK(plain->peak_flops == 5e10);
  CHECK(plain->error == 0.2);
}

TEST_CASE("threads beyond the number of cores share the cores") {
  Calibration calibration{2, 1, 2, 0, {}};
  for (const auto& [work, seconds, elsewhere] : made_steps())
    calibration.points.push_back({{"what", "step"},
                                  {"family", "gpt"},
                                  {"precision", "32-true"},
                                  {"work", work},
                                  {"seconds", seconds - elsewhere}});
  auto two = calibrated_rates({calibration}, "gpt", "32-true", 2, 1);
  auto four = calibrated_rates({calibration}, "gpt", "32-true", 4, 1);
  REQUIRE((two && four));
  CHECK(four->seconds[0] == Approx(2 * two->seconds[0]));
  CHECK_FALSE(calibrated_rates({calibration}, "gpt", "32-true", 2, 2));
  CHECK_FALSE(calibrated_rates({calibration}, "gpt", "bf16-mixed", 2, 1));
  auto one = calibrated_rates({calibration}, "gpt", "32-true", 1, 1);
  REQUIRE(one);
  CHECK(one->seconds == two->seconds);
}
