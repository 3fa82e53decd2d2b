// Every optimizer under every strategy: the same training, the predicted memory, and the same training after a resume.
#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/catalog.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/resumed_training.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Form {
  std::string strategy;
  nlohmann::json options;
  int ranks;
};

/// The forms that differ in what a rank has of a parameter.
std::vector<Form> forms() {
  return {{"ddp", {{"bucket_cap_mb", 0.05}}, 2},
          {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}, 2},
          {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}, 3},
          {"fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}, 4},
          {"fsdp", {{"sharding_strategy", "NO_SHARD"}}, 2},
          {"zero", {{"stage", 1}}, 2},
          {"zero", {{"stage", 2}, {"reduce_bucket_size", 5000}}, 3},
          {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 200}}, 2}};
}

TinyRun run_with(const OptimizerSpec& spec, const Form& form) {
  at::set_num_threads(1);
  TinyRun run;
  run.optimizer.kind = spec.kind;
  run.optimizer.beta1 = spec.betas[0];
  run.optimizer.beta2 = spec.betas[1];
  run.optimizer.weight_decay = 0.1;
  run.optimizer.momentum = 0.9;
  run.optimizer.lr = spec.kind == OptimizerKind::lion ? 1e-3 : 1e-2;
  // The biases of keys in gpt have gradients of rounding errors only. Adafactor divides a gradient by its size, however small it is, so
  // these biases move by full steps in random directions, and as parts of the bias of queries, keys and values they change the root mean
  // square by which all of it is clipped. This is a property of the algorithm; with these biases frozen gpt follows, too (below).
  if (spec.kind == OptimizerKind::adafactor) run.family = "llama";
  run.vocab = 131;  // the embedding has more than 4096 elements
  run.dim = 32;
  run.global_batch = 12;
  run.strategy = form.strategy;
  run.options = form.options;
  run.world_size = form.ranks;
  return run;
}

std::string text_of(const OptimizerSpec& spec, const Form& form) {
  return spec.name + ", " + form.strategy + " " + form.options.dump() + " on " + std::to_string(form.ranks) + " ranks";
}

}  // namespace

TEST_CASE("every optimizer trains the same under every strategy", "[optimizers][parity]") {
  for (const auto& spec : optimizers()) {
    const auto single = train_tiny(run_with(spec, {"single", nlohmann::json::object(), 1}));
    CHECK(single.losses.back() != single.losses.front());
    for (const auto& form : forms()) {
      INFO(text_of(spec, form));
      const auto result = train_tiny(run_with(spec, form));
      for (size_t i = 0; i < single.losses.size(); ++i)
        CHECK_THAT(result.losses[i], Catch::Matchers::WithinRel(single.losses[i], 2e-5));
      if (spec.reach == OptimizerSpec::Reach::matrix || form.strategy == "ddp") continue;
      check_equal(result, train_tiny(run_with(spec, {"ddp", nlohmann::json::object(), form.ranks})));
    }
  }
}

TEST_CASE("adafactor trains gpt the same under every strategy if the biases without true gradients are frozen",
          "[optimizers][parity]") {
  const auto& spec = optimizer_spec(OptimizerKind::adafactor);
  const auto of_gpt = [&](const Form& form) {
    TinyRun run = run_with(spec, form);
    run.family = "gpt";
    run.frozen = {"*.qkv.bias"};
    return run;
  };
  const auto single = train_tiny(of_gpt({"single", nlohmann::json::object(), 1}));
  for (const auto& form : forms()) {
    INFO(text_of(spec, form));
    const auto result = train_tiny(of_gpt(form));
    for (size_t i = 0; i < single.losses.size(); ++i)
      CHECK_THAT(result.losses[i], Catch::Matchers::WithinRel(single.losses[i], 2e-5));
  }
}

namespace {

void check_memory(const TinyRun& run, const std::string& text) {
  const ModelSpec model = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, model));
  const auto measured = measure_memory(run);
  INFO(text << ", " << run.precision << ": claimed " << claim.parameters << " " << claim.gradients << " "
            << claim.optimizer << " " << claim.gathered << " " << claim.communication << " " << claim.activations
            << "; measured " << measured.peak);
  CHECK(measured.between_steps == claim.between_steps);
  CHECK_THAT(static_cast<double>(claim.total()), Catch::Matchers::WithinRel(static_cast<double>(measured.peak), 0.03));
}

TinyRun sized_run(const OptimizerSpec& spec, const Form& form, const std::string& precision) {
  TinyRun run = run_with(spec, form);
  run.precision = precision;
  run.dim = 64;
  run.vocab = 503;
  run.n_layers = 2;
  run.loss_chunk_tokens = 128;
  run.global_batch = 4;
  return run;
}

}  // namespace

TEST_CASE("memory of every optimizer is as predicted", "[optimizers][memory]") {
  for (const auto& spec : optimizers())
    for (const std::string precision : {"32-true", "bf16-true", "bf16-mixed"})
      for (const auto& form : forms())
        if (form.ranks <= 2) check_memory(sized_run(spec, form, precision), text_of(spec, form));
}

namespace {

using Groups = std::vector<std::pair<const char*, OptimizerKind>>;

/// Groups that differ in the states of an element, groups whose updates reach over blocks and whole parameters, and a parameter that one
/// rank has if parameters are sharded, with sums of all ranks.
const Groups of_elements = {
    {"*.bias", OptimizerKind::lion}, {"*.mlp*", OptimizerKind::sgd}, {"head*", OptimizerKind::adam}};
const Groups of_matrices = {{"embedding*", OptimizerKind::adamw_8bit},
                            {"*.attention.w[qk]*", OptimizerKind::muon},
                            {"*.attention*", OptimizerKind::adafactor},
                            {"*.w2*", OptimizerKind::sgd},
                            {"*.mlp*", OptimizerKind::muon}};
const Groups of_one_rank = {{"head.norm.weight", OptimizerKind::adafactor}};
const Groups of_muon = {{"*.mlp*", OptimizerKind::muon}};

/// The parameters of each group have another optimizer than the rest, which has AdamW.
TinyRun grouped(TinyRun run, const Groups& groups, const Form& form) {
  run.family = &groups == &of_matrices ? "llama" : "gpt";
  for (const auto& [pattern, kind] : groups) {
    run.optimizer.others.push_back(run_with(optimizer_spec(kind), form).optimizer);
    run.optimizer.groups.push_back({.pattern = pattern,
                                    .lr = run.optimizer.others.back().lr,
                                    .weight_decay = {},
                                    .optimizer = run.optimizer.others.size()});
  }
  return run;
}

}  // namespace

TEST_CASE("groups with optimizers of their own train the same under every strategy", "[optimizers][parity][groups]") {
  const auto& adamw = optimizer_spec(OptimizerKind::adamw);
  for (const auto* groups : {&of_elements, &of_matrices, &of_one_rank}) {
    const auto train = [&](const Form& form) {
      TinyRun run = grouped(run_with(adamw, form), *groups, form);
      if (groups == &of_one_rank) run.precision = "64-true";  // the dtype of sums follows from it on all ranks
      return train_tiny(run);
    };
    const auto single = train({"single", nlohmann::json::object(), 1});
    for (const auto& form : forms()) {
      INFO(text_of(adamw, form));
      const auto result = train(form);
      for (size_t i = 0; i < single.losses.size(); ++i)
        CHECK_THAT(result.losses[i], Catch::Matchers::WithinRel(single.losses[i], 2e-5));
      if (groups == &of_elements) check_equal(result, train({"ddp", nlohmann::json::object(), form.ranks}));
    }
  }
}

TEST_CASE("memory, collectives and resumes of groups with optimizers of their own are as predicted",
          "[optimizers][memory][traffic][resume][groups]") {
  const auto& adamw = optimizer_spec(OptimizerKind::adamw);
  for (const auto* groups : {&of_elements, &of_matrices})
    for (const auto& form : forms()) {
      if (form.ranks > 2) continue;
      const auto text = text_of(adamw, form);
      for (const std::string precision : {"32-true", "bf16-true", "bf16-mixed"})
        check_memory(grouped(sized_run(adamw, form, precision), *groups, form), text);
      TinyRun run = grouped(run_with(adamw, form), *groups, form),
              ddp = grouped(run_with(adamw, forms()[0]), *groups, form);
      INFO(text);
      const auto through = train_tiny(run);
      CHECK(train_resumed(run, run, 3).state == through.state);
      const auto moved = train_resumed(run, ddp, 3);
      for (size_t k = 0; k < moved.losses.size(); ++k)
        CHECK_THAT(moved.losses[k], Catch::Matchers::WithinRel(through.losses[3 + k], 2e-5));
      run.steps = 2;
      const auto claimed = claimed_traffic(run, {});
      for (const auto& steps : record_traffic(run, launch_threads))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
}

namespace {

/// Why a run of Adam with these groups is refused; empty: it is not.
std::string refused(const std::string& strategy, const nlohmann::json& options, const Groups& groups, int ranks = 2,
                    int tensor = 1, const Accelerator& accelerator = {}) {
  const Form form{strategy, options, ranks};
  auto run = grouped(run_with(optimizer_spec(OptimizerKind::adam), form), groups, form);
  run.tensor = tensor;
  const ModelSpec model = tiny_divided_spec(run, 0);
  Job job = tiny_job(run, model);
  job.accelerator = accelerator;
  return find_strategy(strategy)->entry->refuse(job).value_or("");
}

}  // namespace

TEST_CASE("groups with optimizers of their own are refused where one rule updates all parameters", "[groups]") {
  TemporaryFolder folder;
  const nlohmann::json nvme = {
      {"offload_optimizer", true}, {"offload_optimizer_device", "nvme"}, {"nvme_path", folder.path.string()}};
  CHECK(
      refused("zero", nvme, of_elements).starts_with("an update of state on NVMe streams all parameters by one rule"));
  CHECK(refused("bagua", {{"algorithm", "qadam"}, {"warmup_steps", 2}}, of_elements)
            .starts_with("algorithm = \"qadam\" reduces moments of all parameters"));
  CHECK(refused("hivemind", {{"target_batch_size", 64}}, of_elements, 1)
            .starts_with("peers of hivemind exchange all parameters by one rule"));
  if (find_strategy("xla_fsdp")->entry->unavailable.empty())
    CHECK(refused("xla_fsdp", nlohmann::json::object(), of_elements)
              .starts_with("a compiled step updates all parameters by one rule"));
  CHECK(refused("zero", {{"offload_optimizer", true}}, of_elements).empty());
}

TEST_CASE("an optimizer that a group has is refused like that of all parameters, with the group's name", "[groups]") {
  const std::string setting = "optimizer.groups with name = \"muon\" for `*.mlp*` needs ";
  CHECK(refused("ddp", nlohmann::json::object(), of_muon, 4, 2)
            .starts_with(setting + "complete parameters, so it cannot be combined with a tensor axis"));
  CHECK(refused("zero", {{"offload_optimizer", true}}, of_muon, 2, 1, cuda_accelerator())
            .starts_with(setting + "sums over the ranks that share a parameter, which an update in host memory"));
}

TEST_CASE("the memory of Muon's update is as predicted where it is the most of a step", "[optimizers][memory]") {
  const auto& spec = optimizer_spec(OptimizerKind::muon);
  for (const std::string precision : {"32-true", "bf16-true", "bf16-mixed"})
    for (const Form& form : {Form{"single", nlohmann::json::object(), 1}, Form{"zero", {{"stage", 1}}, 2},
                             Form{"fsdp", nlohmann::json::object(), 2}, Form{"fsdp", nlohmann::json::object(), 3}}) {
      TinyRun run = sized_run(spec, form, precision);
      run.seq_len = 8;
      run.global_batch = form.ranks;
      check_memory(run, text_of(spec, form));
    }
}

TEST_CASE("the copy of the masters that an average needs in validation is in the claim", "[optimizers][memory]") {
  const auto& spec = optimizer_spec(OptimizerKind::schedule_free_adamw);
  for (const std::string precision : {"32-true", "bf16-true", "bf16-mixed"})
    for (auto form : forms())
      for (const bool adapts : {false, true}) {
        if (form.ranks > 2) continue;
        TinyRun run = sized_run(spec, form, precision);
        run.seq_len = 32;
        if (adapts) run.fine_tune.method = "lora";
        run.validates = true;
        check_memory(run, text_of(spec, form) + (adapts ? ", adapters" : ""));
      }
  // On the device, gradients need as much in a step. In host memory the copy exists beside what steps need.
  TinyRun run = sized_run(spec, {"zero", {{"stage", 2}, {"offload_optimizer", true}}, 2}, "32-true");
  const ModelSpec model = tiny_spec(run);
  Job job = tiny_job(run, model);
  job.accelerator = cuda_accelerator();
  const auto& entry = *find_strategy(run.strategy)->entry;
  const auto of_steps = entry.memory(job);
  job.validates = true;
  CHECK(entry.memory(job).host >= of_steps.host + of_steps.held * 4);
}

TEST_CASE("every optimizer continues with the same bits after a resume, also under another strategy",
          "[optimizers][resume]") {
  const auto all = forms();
  for (const auto& spec : optimizers())
    for (size_t i = 1; i < all.size(); ++i) {
      if (all[i].ranks != 2) continue;
      const TinyRun run = run_with(spec, all[i]), other = run_with(spec, all[0]);
      INFO(text_of(spec, all[i]));
      const auto through = train_tiny(run);
      const auto same = train_resumed(run, run, 3);
      CHECK(same.losses == std::vector<double>(through.losses.begin() + 3, through.losses.end()));
      CHECK(same.state == through.state);
      const auto moved = train_resumed(run, other, 3);
      for (size_t k = 0; k < moved.losses.size(); ++k)
        CHECK_THAT(moved.losses[k], Catch::Matchers::WithinRel(through.losses[3 + k], 2e-5));
      if (spec.reach != OptimizerSpec::Reach::matrix) CHECK(moved.state == through.state);
    }
}

TEST_CASE("a checkpoint in one file has every state in its own shape and dtype", "[optimizers]") {
  for (const auto& spec : optimizers()) {
    const TinyRun run = run_with(spec, {"fsdp", {{"state_dict_type", "full"}}, 2});
    std::map<std::string, std::vector<float>> expected, saved;
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < 2; ++step) strategy.step(tiny_input(run, world.rank, step));
        collect_state(strategy, expected, mutex);
        for (const auto& view : strategy.views_to_save()) {
          const auto read = view.read(0, view.count);
          const auto values =
              torch::from_blob(const_cast<std::byte*>(read.bytes.data()), {view.count}, scalar_type_named(view.dtype))
                  .to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
          std::lock_guard lock(mutex);
          saved[view.name].assign(values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
        }
      });
    });
    INFO(spec.name);
    CHECK(saved == expected);
  }
}

TEST_CASE("evaluation with schedule_free_adamw uses the average, and training continues as without it",
          "[optimizers]") {
  const auto& spec = optimizer_spec(OptimizerKind::schedule_free_adamw);
  for (const auto& form : {Form{"single", nlohmann::json::object(), 1}, Form{"ddp", nlohmann::json::object(), 2},
                           Form{"fsdp", {{"sharding_strategy", "FULL_SHARD"}}, 2}, Form{"zero", {{"stage", 1}}, 2}}) {
    INFO(text_of(spec, form));
    const TinyRun run = run_with(spec, form);
    const auto plain = train_tiny(run);
    TinyResult evaluated;
    std::vector<double> at_average, at_point;
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < run.steps; ++step) {
          const auto outcome = strategy.step(tiny_input(run, world.rank, step));
          const double loss = strategy.evaluate(tiny_batch(run, 100, 2));
          if (world.rank == 0) evaluated.losses.push_back(outcome.loss);
          if (world.rank == 0) at_average.push_back(loss);
        }
        collect_state(strategy, evaluated.state, mutex);
      });
    });
    check_equal(evaluated, plain);
    // The average x = y + (1 - 1 / beta1) (z - y) as the parameters of another optimizer gives the same loss.
    TinyRun other = run;
    other.optimizer.kind = OptimizerKind::adamw;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(other, world, [&](Strategy& strategy) {
        for (const auto& tensor : strategy.parameters()) {
          const auto name = tensor.name.substr(std::string("param/").size());
          const auto at = [&](const std::string& kind) {
            return torch::from_blob(evaluated.state.at(kind + name).data() + tensor.offset, {tensor.numel()},
                                    torch::kFloat32);
          };
          tensor.write(0, at("param/").lerp(at("optimizer/z/"), 1 - 1 / run.optimizer.beta1));
        }
        strategy.state_loaded();
        const double loss = strategy.evaluate(tiny_batch(run, 100, 2));
        if (world.rank == 0) at_point.push_back(loss);
      });
    });
    CHECK_THAT(at_average.back(), Catch::Matchers::WithinRel(at_point.back(), 1e-6));
  }
}

TEST_CASE("the collectives of every optimizer are as predicted", "[optimizers][traffic]") {
  for (const auto& spec : optimizers())
    for (const auto& form : forms()) {
      TinyRun run = run_with(spec, form);
      run.steps = 2;
      INFO(text_of(spec, form));
      const auto claimed = claimed_traffic(run, {});
      for (const auto& steps : record_traffic(run, launch_threads))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
}

TEST_CASE("optimizers whose states can be in a file train there with the same bits", "[optimizers][offload]") {
  for (const auto& spec : optimizers()) {
    TemporaryFolder folder;
    Form form{"zero", {{"stage", 3}}, 2};
    const TinyRun plain = run_with(spec, form);
    TinyRun swapped = plain;
    swapped.options.update(
        {{"offload_optimizer", true}, {"offload_optimizer_device", "nvme"}, {"nvme_path", folder.path.string()}});
    const ModelSpec model = tiny_spec(swapped);
    const auto why = find_strategy("zero")->entry->refuse(tiny_job(swapped, model));
    INFO(spec.name << ": " << why.value_or(""));
    CHECK(why.has_value() != spec.states_can_be_in_file());
    if (!why) check_equal(train_tiny(swapped), train_tiny(plain));
  }
}
