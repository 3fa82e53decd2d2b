// Batches with any fields, whose rows count differently: losses and gradients are those of the sum over all rows, divided by the
// weight of the global batch.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/clock.hpp"
#include "runner/train/trainer.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/scored_samples.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

struct Division {
  std::string strategy;
  int world_size;
  int64_t micro_batch_size;
};

// ---- a model without tokens
constexpr int64_t scored_samples = 10, scored_batch = 4, scored_steps = 3;  // the last batch has two rows
const OptimizerConfig sgd{.kind = OptimizerKind::sgd, .lr = 0.5, .weight_decay = 0, .groups = {}};

std::vector<float> initial_values(const ParameterSpec& parameter) {
  std::vector<float> values(static_cast<size_t>(parameter.numel()));
  initialize_slice(parameter, 3, 0, values);
  return values;
}

/// Makes a strategy for the model and calls `body` with it, on each rank.
void with_scored(const Division& division, const std::function<void(World&, Strategy&)>& body) {
  run_ranks(division.world_size, [&](World& world) {
    const auto model = scored::model();
    const auto specs = model->spec.parameters();
    Job job;
    job.model = &model->spec;
    job.mesh = data_mesh(division.world_size);
    job.local_size = division.world_size;
    job.micro_batch_size = division.micro_batch_size;
    job.accumulation = scored_batch / division.world_size / division.micro_batch_size;
    job.optimizer = &sgd.spec();
    job.optimizer_states = sgd.states();
    job.options = with_defaults(find_strategy(division.strategy)->entry->options, json::object());
    const auto strategy =
        make_strategy(division.strategy, {.world = world,
                                          .model = *model,
                                          .job = job,
                                          .optimizer = sgd,
                                          .source = [&](size_t slot, int64_t offset, std::span<float> out) {
                                            std::ranges::copy_n(initial_values(*specs[slot]).begin() + offset,
                                                                std::ssize(out), out.begin());
                                          }});
    strategy->module_to_device();
    body(world, *strategy);
    strategy->teardown();
  });
}

/// Trains with plain tensors: no loader, no blocks, no strategy.
TinyResult train_by_hand() {
  TinyResult result;
  const scored::Samples data(scored_samples);
  std::vector<torch::Tensor> weights;
  const auto spec = scored::spec();
  for (const auto* parameter : spec.parameters())
    weights.push_back(torch::tensor(initial_values(*parameter)).view(parameter->shape).requires_grad_(true));
  for (int64_t first = 0; first < scored_samples; first += scored_batch) {
    auto sum = torch::zeros({});
    int64_t count = 0;
    for (int64_t k = first; k < std::min(scored_samples, first + scored_batch); ++k) {
      auto x = at::sin(7.0 * static_cast<double>(k) + at::arange(scored::features, torch::kFloat32));
      x = at::mv(weights[2], at::mv(weights[1], at::mv(weights[0], x).tanh()));
      sum = sum - k % 4 * x.log_softmax(0)[k % scored::labels];
      count += k % 4;
    }
    const auto loss = sum / count;
    const auto gradients = torch::autograd::grad({loss}, weights);
    double squared = 0;
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      squared += gradients[i].square().sum().item<double>();
      weights[i].sub_(gradients[i], sgd.lr);
    }
    result.losses.push_back(loss.item<double>());
    result.norms.push_back(std::sqrt(squared));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto flat = weights[i].detach().reshape({-1}).contiguous();
    result.state["param/" + spec.parameters()[i]->name] = {flat.data_ptr<float>(),
                                                           flat.data_ptr<float>() + flat.numel()};
  }
  return result;
}

// ---- tokens of which some are ignored
/// Sample k ignores its first 5 k mod 17 targets, so sample 10 ignores all 16 of them.
struct PartlyIgnored : Dataset {
  const TinyRun& run;
  int64_t rows;
  PartlyIgnored(const TinyRun& run, int64_t rows) : run(run), rows(rows) {}
  int64_t size() const override { return rows; }
  std::vector<BatchField> fields() const override { return token_fields(run.seq_len); }
  int64_t weight(int64_t sample) const override { return run.seq_len - 5 * sample % 17; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    tiny_row(run, sample, batch, row);
    std::ranges::fill_n(batch.row<int64_t>(token_field::targets, row).begin(), 5 * sample % 17, ignored_target);
  }
};

/// Trains two epochs of 20 rows: in each, a batch of 12 rows and one of 8. Returns the events of rank 0.
std::vector<json> train_partly_ignored(const Division& division, double lr) {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.strategy = division.strategy;
  run.world_size = division.world_size;
  run.accumulation = run.global_batch / division.world_size / division.micro_batch_size;
  run.optimizer.lr = lr;
  Recipe recipe;
  recipe.optimizer.lr = lr;
  recipe.data.shuffle = false;
  recipe.train.global_batch_size = run.global_batch;
  recipe.train.micro_batch_size = division.micro_batch_size;
  recipe.train.max_steps = 4;
  recipe.train.log_every_n_steps = 1;
  const auto log = folder.path / "events";
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  run_ranks(division.world_size, [&](World& world) {
    const PartlyIgnored train(run, 20), validation(run, 15);
    with_strategy(run, world, [&](Strategy& strategy) {
      EventSink sink(world.rank, world.rank == 0 ? fd : -1);
      Hooks no_hooks;
      Trainer trainer({.recipe = recipe,
                       .world = world,
                       .engine = strategy,
                       .train = train,
                       .validation = &validation,
                       .hooks = no_hooks,
                       .events = sink,
                       .run_dir = folder.path});
      trainer.run();
    });
  });
  ::close(fd);
  return EventReader(0).feed(read_file(log));
}

/// Cross entropy of each target that counts, from the logits at its position, with initial weights: their mean over samples
/// [first, last), and their number.
std::pair<double, int64_t> mean_over_counted(int64_t first, int64_t last) {
  TinyRun run;
  double sum = 0;
  int64_t count = 0;
  run_ranks(1, [&](World& world) {
    const PartlyIgnored data(run, last);
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t sample = first; sample < last; ++sample) {
        HostBatch row(1, data.fields());
        data.read(sample, row, 0);
        const auto targets = row.row<int64_t>(token_field::targets, 0);
        for (int64_t position = 0; position < run.seq_len; ++position) {
          const int64_t target = targets[static_cast<size_t>(position)];
          if (target == ignored_target) continue;
          auto logits = strategy.logits(row, position);
          sum -= torch::from_blob(logits.data(), {run.vocab}, torch::kFloat32).log_softmax(0)[target].item<double>();
          ++count;
        }
      }
    });
  });
  return {sum / static_cast<double>(count), count};
}

}  // namespace

TEST_CASE("rows of any fields train to the hand-computed losses, gradients and weights, however they are divided") {
  const auto division =
      GENERATE(Division{"single", 1, 4}, Division{"single", 1, 1}, Division{"ddp", 2, 2}, Division{"ddp", 2, 1},
               Division{"fsdp", 2, 2}, Division{"fsdp", 2, 1}, Division{"zero", 4, 1});
  INFO(division.strategy << " on " << division.world_size << " ranks, micro-batches of " << division.micro_batch_size);
  at::set_num_threads(1);
  const TinyResult expected = train_by_hand();
  TinyResult found;
  std::mutex mutex;
  with_scored(division, [&](World& world, Strategy& strategy) {
    const scored::Samples data(scored_samples);
    Loader loader(data, {.global_batch_size = scored_batch,
                         .micro_batch_size = division.micro_batch_size,
                         .data_rank = strategy.data_rank(),
                         .data_ranks = strategy.data_ranks(),
                         .shuffle = false});
    StepBatch batch;
    for (int64_t step = 0; step < scored_steps; ++step) {
      RANK_CHECK(loader.next(batch));
      const auto result = strategy.step({.micro_batches = batch.micro_batches, .weight = batch.weight});
      if (world.rank != 0) continue;
      found.losses.push_back(result.loss);
      found.norms.push_back(result.grad_norm);
    }
    collect_state(strategy, found.state, mutex);
  });
  for (size_t step = 0; step < static_cast<size_t>(scored_steps); ++step) {
    CHECK_THAT(found.losses.at(step), WithinRel(expected.losses.at(step), 1e-5));
    CHECK_THAT(found.norms.at(step), WithinRel(expected.norms.at(step), 1e-5));
  }
  REQUIRE(found.state.size() == expected.state.size());
  for (const auto& [name, values] : expected.state) {
    INFO(name);
    for (size_t i = 0; i < values.size(); ++i)
      CHECK_THAT(found.state.at(name).at(i), Catch::Matchers::WithinAbs(values[i], 1e-5));
  }
}

TEST_CASE("a global batch in which nothing counts has loss 0 and no gradient") {
  with_scored({"single", 1, 4}, [&](World&, Strategy& strategy) {
    HostBatch batch(4, scored::fields());
    const auto result = strategy.step({.micro_batches = {batch}, .weight = 0});
    RANK_CHECK(result.loss == 0);
    RANK_CHECK(result.grad_norm == 0);
    RANK_CHECK(result.finite);
  });
}

TEST_CASE("a batch without a field of the model, or with another type of it, is an error that names both") {
  const auto error_with = [&](const std::vector<BatchField>& fields) {
    std::string message;
    with_scored({"single", 1, 4}, [&](World&, Strategy& strategy) {
      try {
        strategy.step({.micro_batches = {HostBatch(4, fields)}, .weight = 1});
      } catch (const Error& error) {
        message = error.what();
      }
    });
    return message;
  };
  auto fields = scored::fields();
  fields[1].type = ElementType::int64;
  CHECK(error_with(fields) ==
        "the model needs `label` (int32 []) in each batch, but the batch has `features` (float32 [5]), `label` (int64 "
        "[]), `times` (uint8 [])");
  CHECK_THAT(error_with({fields[0], fields[2]}), ContainsSubstring("needs `label` (int32 [])") &&
                                                     ContainsSubstring("has `features` (float32 [5]), `times`"));
}

TEST_CASE("with ignored targets, losses are means over the targets that count, on any number of ranks") {
  const auto division = GENERATE(Division{"single", 1, 12}, Division{"single", 1, 3}, Division{"ddp", 2, 3},
                                 Division{"fsdp", 2, 6}, Division{"ddp", 4, 1});
  INFO(division.strategy << " on " << division.world_size << " ranks, micro-batches of " << division.micro_batch_size);
  const auto [first_loss, first_count] = mean_over_counted(0, 12);
  const auto [second_loss, second_count] = mean_over_counted(12, 20);
  const auto [validation_loss, validation_count] = mean_over_counted(0, 15);
  REQUIRE(first_count < 12 * 16);
  int64_t validations = 0;
  for (const auto& event : train_partly_ignored(division, /*lr=*/0)) {
    if (event.at("event") == "step") {
      const bool first = event.at("step").get<int64_t>() % 2 == 1;
      CHECK(event.at("tokens") == (first ? 12 : 8) * 16);  // also those that are not supervised
      CHECK_THAT(event.at("loss").get<double>(), WithinRel(first ? first_loss : second_loss, 1e-5));
    } else if (event.at("event") == "validation") {
      ++validations;
      CHECK(event.at("tokens") == validation_count);
      CHECK_THAT(event.at("loss").get<double>(), WithinRel(validation_loss, 1e-5));
    } else if (event.at("event") == "finished") {
      CHECK(event.at("tokens") == 2 * 20 * 16);
    }
  }
  CHECK(validations == 2);
}

TEST_CASE("with ignored targets, trainings on several ranks reach the losses of one") {
  const auto losses = [](const Division& division) {
    std::vector<double> list;
    for (const auto& event : train_partly_ignored(division, /*lr=*/1e-2))
      if (event.at("event") == "step" || event.at("event") == "validation") list.push_back(event.at("loss"));
    return list;
  };
  const auto expected = losses({"single", 1, 12});
  for (const Division& division :
       {Division{"single", 1, 2}, Division{"ddp", 2, 3}, Division{"fsdp", 2, 3}, Division{"ddp", 4, 1}}) {
    INFO(division.strategy << " on " << division.world_size);
    const auto found = losses(division);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK_THAT(found[i], WithinRel(expected[i], 1e-5));
  }
}
