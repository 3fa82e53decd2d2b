// Every strategy on simulated devices, with the plans of accelerators: no race and the same bits under every policy.
//
// A form is compared with the form that the project promises it equals, on the same devices: sharded ones with ddp.
// Forms without such a promise (other sums, another optimizer kernel) are compared with themselves under the eager
// policy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/device_training.hpp"
#include "tests/device/waits.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/offload_forms.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::simulated;

namespace {

using Texts = std::vector<std::string>;
using nlohmann::json;
using testing::OffloadForm;

struct Form {
  std::string label;
  TinyRun run;
  bool equals_ddp = false;
};

TinyResult reference_of(const Form& form) {
  TinyRun run = form.run;
  if (form.equals_ddp) {
    run = device_run("ddp", form.run.world_size);
    run.family = form.run.family;
    run.accumulation = form.run.accumulation;
    run.recompute = form.run.recompute;
    run.tied = form.run.tied;
    run.dropout = form.run.dropout;
    run.n_layers = form.run.n_layers;
  }
  Simulation simulation({Order::eager});
  auto result = train_on_devices(run);
  CHECK(take_reports() == Texts());
  return result;
}

void check_under_all_policies(const Form& form) {
  at::set_num_threads(1);
  auto reference = reference_of(form);
  CHECK(std::isfinite(reference.losses.back()));
  for (const auto& [name, policy] : extreme_policies()) {
    INFO(form.label << ", " << name);
    Simulation simulation(policy);
    auto result = train_on_devices(form.run);
    CHECK(take_reports() == Texts());
    CHECK(operator_counts().waited.empty());
    CHECK(result.losses == reference.losses);
    if (!form.equals_ddp) CHECK(testing::same_norms(result.norms, reference.norms));
    CHECK(result.state == reference.state);
  }
}

template <typename Change>
Form changed(Form form, const std::string& label, Change&& change) {
  form.label += ", " + label;
  change(form.run);
  return form;
}

// ---- forms

Form fsdp(const std::string& label, int world_size, const json& options) {
  return {"fsdp " + label, device_run("fsdp", world_size, options), true};
}

Form zero(const std::string& label, int world_size, const json& options) {
  return {"zero " + label, device_run("zero", world_size, options), true};
}

std::vector<Form> whole_copies() {
  Form single{"single", device_run("single", 1)}, ddp{"ddp", device_run("ddp", 3)};
  return {single,
          changed(single, "llama", [](TinyRun& run) { run.family = "llama"; }),
          changed(single, "dropout", [](TinyRun& run) { run.dropout = 0.1; }),
          changed(single, "bf16-mixed, accumulation",
                  [](TinyRun& run) { run.precision = "bf16-mixed", run.accumulation = 2; }),
          ddp,
          changed(ddp, "accumulation", [](TinyRun& run) { run.accumulation = 2; }),
          changed(ddp, "bf16 on the wire",
                  [](TinyRun& run) {
                    run.options = {{"ddp_comm_hook", "bf16_compress"}};
                  }),
          changed(ddp, "static graph, small buckets", [](TinyRun& run) {
            run.options = {{"static_graph", true}, {"bucket_cap_mb", 0.02}};
          })};
}

std::vector<Form> fsdp_forms() {
  Form full = fsdp("FULL_SHARD", 3, {});
  return {full,
          changed(full, "llama", [](TinyRun& run) { run.family = "llama"; }),
          changed(full, "untied", [](TinyRun& run) { run.tied = false; }),
          fsdp("SHARD_GRAD_OP", 3, {{"sharding_strategy", "SHARD_GRAD_OP"}}),
          fsdp("NO_SHARD", 2, {{"sharding_strategy", "NO_SHARD"}}),
          fsdp("HYBRID_SHARD", 4, {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}),
          fsdp("prefetch after", 2, {{"backward_prefetch", "BACKWARD_POST"}}),
          fsdp("no prefetch", 2, {{"backward_prefetch", "NONE"}}),
          fsdp("one unit", 2, {{"auto_wrap_policy", "none"}}),
          fsdp("units by name", 2, {{"auto_wrap_policy", {"blocks.1", "blocks.2"}}})};
}

std::vector<Form> zero_forms() {
  std::vector<Form> forms;
  for (int stage : {1, 2, 3}) {
    std::string label = "stage " + std::to_string(stage);
    forms.push_back(zero(label, 3, {{"stage", stage}}));
    forms.push_back(zero(label + ", small buckets", 3, {{"stage", stage}, {"reduce_bucket_size", 5000}}));
    forms.push_back(zero(label + ", all-reduce and broadcast", 2,
                         {{"stage", stage}, {"reduce_scatter", false}, {"allgather_partitions", false}}));
  }
  json all_sharded{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}};
  forms.push_back(zero("stage 3, all sharded", 3, all_sharded));
  json one_ahead = all_sharded, small = all_sharded;
  one_ahead["stage3_prefetch_bucket_size"] = 1;
  forms.push_back(zero("stage 3, one unit ahead", 3, one_ahead));
  small.update({{"stage3_param_persistence_threshold", 500}, {"mics_shard_size", 2}});
  forms.push_back(zero("stage 3, MiCS", 4, small));
  return forms;
}

std::vector<Form> recomputing_forms() {
  std::vector<Form> forms;
  for (Form form : {Form{"single", device_run("single", 1)}, fsdp("FULL_SHARD", 3, {}),
                    zero("stage 3", 2, {{"stage", 3}, {"stage3_param_persistence_threshold", 0}})}) {
    forms.push_back(changed(form, "recompute", [](TinyRun& run) { run.recompute = true; }));
    forms.push_back(changed(form, "recompute, dropout", [](TinyRun& run) { run.recompute = true, run.dropout = 0.2; }));
    forms.push_back(changed(form, "recompute, inputs in host memory", [](TinyRun& run) {
      run.recompute = true;
      run.checkpointing.cpu_checkpointing = true;
      run.n_layers = 4;
    }));
  }
  return forms;
}

/// Sums over ranks before sums over micro-batches: other bits than ddp's.
std::vector<Form> forms_reducing_each_micro_batch() {
  std::vector<Form> forms;
  for (Form form : {fsdp("FULL_SHARD", 3, {}), fsdp("one unit", 2, {{"auto_wrap_policy", "none"}}),
                    fsdp("HYBRID_SHARD", 4, {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}),
                    zero("stage 2, one bucket", 2, {{"stage", 2}, {"reduce_bucket_size", 10'000'000}}),
                    zero("stage 2, predivided", 2, {{"stage", 2}, {"gradient_predivide_factor", 8.0}}),
                    zero("stage 3", 3, {{"stage", 3}, {"stage3_param_persistence_threshold", 0}})}) {
    form.equals_ddp = false;
    forms.push_back(changed(form, "3 micro-batches", [](TinyRun& run) { run.accumulation = 3; }));
    forms.push_back(changed(form, "clipped, bf16-mixed", [](TinyRun& run) {
      run.precision = "bf16-mixed";
      run.clip_norm = 0.5;
    }));
  }
  return forms;
}

json offload_options(const OffloadForm& form, const std::string& folder) {
  json options = testing::options_of(form, folder);
  options["reduce_bucket_size"] = 5000;  // several units in stages 1 and 2
  return options;
}

std::vector<Form> offload_forms(const std::string& folder) {
  std::vector<Form> forms;
  for (const OffloadForm& offload : {OffloadForm{1, "cpu", ""},
                                     {2, "cpu", ""},
                                     {3, "cpu", ""},
                                     {3, "", "cpu"},
                                     {3, "cpu", "cpu"},
                                     {3, "nvme", "nvme"},
                                     {2, "nvme", ""}})
    for (std::string precision : {"32-true", "bf16-mixed"}) {
      Form form = zero("stage " + std::to_string(offload.stage) + ", optimizer " + offload.optimizer + ", parameters " +
                           offload.parameters,
                       offload.stage == 2 ? 3 : 2, offload_options(offload, folder));
      form.equals_ddp = false;
      forms.push_back(changed(form, precision, [&](TinyRun& run) {
        run.precision = precision;
        run.accumulation = precision == "32-true" ? 1 : 2;
        if (precision == "32-true") run.clip_norm = 0.5;
      }));
    }
  Form sharded = fsdp("cpu_offload", 3, {{"cpu_offload", true}});
  sharded.equals_ddp = false;
  forms.push_back(sharded);
  // One rank has nothing to gather: it copies its shards from host memory on the side stream.
  forms.push_back(changed(sharded, "one rank", [](TinyRun& run) { run.world_size = 1; }));
  forms.push_back(
      changed(sharded, "bf16-mixed", [](TinyRun& run) { run.precision = "bf16-mixed", run.accumulation = 2; }));
  return forms;
}

}  // namespace

TEST_CASE("whole copies of the model have one result under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(whole_copies())));
}

TEST_CASE("every form of fsdp equals ddp under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(fsdp_forms())));
}

TEST_CASE("every form of zero equals ddp under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(zero_forms())));
}

TEST_CASE("recomputation has one result under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(recomputing_forms())));
}

TEST_CASE("reductions that overlap with later micro-batches have one result under every policy, without races",
          "[device][parity][overlap]") {
  check_under_all_policies(GENERATE(from_range(forms_reducing_each_micro_batch())));
}

TEST_CASE("offload has one result under every policy, without races", "[device][parity][offload]") {
  TemporaryFolder folder;
  for (const auto& form : offload_forms(folder.path.string())) check_under_all_policies(form);
}

TEST_CASE("the devices train as the CPU does", "[device][parity]") {
  at::set_num_threads(1);
  for (const Form& form : {Form{"single", device_run("single", 1)}, fsdp("FULL_SHARD", 3, {}),
                           zero("stage 2, offload", 2, {{"stage", 2}, {"offload_optimizer", true}})}) {
    INFO(form.label);
    auto cpu = testing::train_tiny(form.run);
    Simulation simulation;
    auto device = train_on_devices(form.run);
    REQUIRE(device.losses.size() == cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i)
      CHECK_THAT(device.losses[i], Catch::Matchers::WithinRel(cpu.losses[i], 1e-5));
    CHECK(take_reports() == Texts());
  }
}

namespace {

/// What happens between steps: evaluation if `evaluates`, a look at the training state, and loading it again.
void use_between_steps(const TinyRun& run, bool evaluates, TinyResult& result, std::mutex& mutex) {
  run_on_devices(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      std::vector<double> losses;
      auto batch = testing::tiny_batch(run, 0, 4);
      batch.inputs = batch.inputs.to(world.device);
      batch.targets = batch.targets.to(world.device);
      for (int64_t step = 0; step < 2; ++step) {
        losses.push_back(strategy.step(tiny_input(run, world, step)).loss);
        if (evaluates) losses.push_back(strategy.evaluate(batch));
      }
      for (const auto& tensor : strategy.state())
        if (tensor.numel() > 0) tensor.write(0, tensor.read(0, tensor.numel()));
      strategy.state_loaded();
      losses.push_back(strategy.step(tiny_input(run, world, 2)).loss);
      if (world.rank == 0) result.losses = losses;
      testing::collect_state(strategy, result.state, mutex);
    });
  });
}

}  // namespace

TEST_CASE("evaluation and the training state wait for an overlapping update, under every policy", "[device][offload]") {
  at::set_num_threads(1);
  auto run = GENERATE(device_run("fsdp", 2), device_run("fsdp", 2, {{"cpu_offload", true}}),
                      device_run("zero", 2, offload_options({2, "cpu", ""}, "")),
                      device_run("zero", 2, offload_options({3, "cpu", "cpu"}, "")));
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  bool evaluates = GENERATE(false, true);
  std::optional<TinyResult> first;
  for (const auto& [name, policy] : all_policies()) {
    INFO(run.strategy << " " << run.options.dump() << ", " << run.precision << ", evaluates " << evaluates << ", "
                      << name);
    Simulation simulation(policy);
    TinyResult result;
    std::mutex mutex;
    use_between_steps(run, evaluates, result, mutex);
    CHECK(take_reports() == Texts());
    if (!first) first = result;
    CHECK(result.losses == first->losses);
    CHECK(result.state == first->state);
  }
}

namespace {

/// A training, by which the device can notice that a wait is missing.
struct Workload {
  std::string label;
  std::function<TinyResult()> train;
  TinyResult expected = {};
  std::vector<std::string> places = {};  ///< where it waits
};

std::vector<Workload> workloads(const std::string& folder) {
  std::vector<Workload> list;
  for (const auto& forms : {whole_copies(), fsdp_forms(), zero_forms(), recomputing_forms(),
                            forms_reducing_each_micro_batch(), offload_forms(folder)})
    for (const auto& form : forms) list.push_back({form.label, [run = form.run] { return train_on_devices(run); }});
  for (const auto& run :
       {device_run("fsdp", 2, {{"cpu_offload", true}}), device_run("zero", 2, offload_options({2, "cpu", ""}, "")),
        device_run("zero", 2, offload_options({3, "cpu", "cpu"}, "")), device_run("fsdp", 2)})
    for (bool evaluates : {false, true})
      list.push_back({"between steps", [run, evaluates] {
                        TinyResult result;
                        std::mutex mutex;
                        use_between_steps(run, evaluates, result, mutex);
                        return result;
                      }});
  return list;
}

/// Whether the device notices that `left_out` is missing: a report, an error, or another result.
bool is_noticed(const Workload& workload, const std::string& left_out, const Policy& policy) {
  watch_waits(left_out);
  bool noticed = false;
  try {
    Simulation simulation(policy);
    auto result = workload.train();
    noticed = result.losses != workload.expected.losses || result.state != workload.expected.state;
  } catch (const std::exception&) {
    noticed = true;
  }
  noticed |= !take_reports().empty();
  watched_waits();
  return noticed;
}

}  // namespace

// Waits of a thread for another thread are not among these; background_update_test tests them.
TEST_CASE("every wait for the device and every record_stream is necessary", "[device][waits]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  auto list = workloads(folder.path.string());
  std::vector<std::string> places;
  for (auto& workload : list) {
    watch_waits("");
    {
      Simulation simulation;
      workload.expected = workload.train();
    }
    workload.places = watched_waits();
    CHECK(take_reports() == Texts());
    for (const auto& place : workload.places)
      if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  CHECK(places.size() > 10);
  for (const auto& place : places) {
    bool noticed = false;
    for (const auto& workload : list)
      for (const auto& [name, policy] : extreme_policies())
        noticed = noticed || (std::ranges::find(workload.places, place) != workload.places.end() &&
                              is_noticed(workload, place, policy));
    INFO(place);
    CHECK(noticed);
  }
}
