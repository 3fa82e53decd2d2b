// Every strategy on simulated devices, with the plans of accelerators: no race and the same bits under every policy.
//
// A form is compared with the form that the project promises it equals, on the same devices: sharded ones with ddp.
// Forms without such a promise (other sums, another optimizer kernel) are compared with themselves under the eager
// policy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/device_training.hpp"
#include "tests/device/waits.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/strategy_forms.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::simulated;

namespace {

using Texts = std::vector<std::string>;
using testing::Form;

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

}  // namespace

TEST_CASE("whole copies of the model have one result under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(testing::whole_copies())));
}

TEST_CASE("every form of fsdp equals ddp under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(testing::fsdp_forms())));
}

TEST_CASE("every form of zero equals ddp under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(testing::zero_forms())));
}

TEST_CASE("every placement of colossalai's chunks has one result under every policy, without races",
          "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(testing::chunk_forms())));
}

TEST_CASE("comm hooks, bagua and horovod have one result under every policy, without races", "[device][parity]") {
  static testing::EveryNth chosen(3);
  const auto form = GENERATE(from_range(testing::reducer_forms()));
  if (chosen()) check_under_all_policies(form);
}

TEST_CASE("recomputation has one result under every policy, without races", "[device][parity]") {
  check_under_all_policies(GENERATE(from_range(testing::recomputing_forms())));
}

TEST_CASE("reductions that overlap with later micro-batches have one result under every policy, without races",
          "[device][parity][overlap]") {
  check_under_all_policies(GENERATE(from_range(testing::forms_reducing_each_micro_batch())));
}

TEST_CASE("offload has one result under every policy, without races", "[device][parity][offload]") {
  TemporaryFolder folder;
  for (const auto& form : testing::offloading_forms(folder.path.string())) check_under_all_policies(form);
}

TEST_CASE("frozen parameters with offload have one result under every policy, without races",
          "[device][parity][frozen]") {
  check_under_all_policies(GENERATE(from_range(testing::frozen_forms())));
}

namespace {

/// What happens between steps: evaluation if `evaluates`, a look at the training state, and loading it again.
void use_between_steps(const TinyRun& run, bool evaluates, TinyResult& result, std::mutex& mutex) {
  run_on_devices(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      std::vector<double> losses;
      auto batch = testing::tiny_batch(run, 0, 4);
      for (int64_t step = 0; step < 2; ++step) {
        losses.push_back(strategy.step(tiny_input(run, world.rank, step)).loss);
        if (evaluates) losses.push_back(strategy.evaluate(batch));
      }
      for (const auto& tensor : strategy.state())
        if (tensor.numel() > 0) tensor.write(0, tensor.read(0, tensor.numel()));
      strategy.state_loaded();
      losses.push_back(strategy.step(tiny_input(run, world.rank, 2)).loss);
      if (world.rank == 0) result.losses = losses;
      testing::collect_state(strategy, result.state, mutex);
    });
  });
}

}  // namespace

TEST_CASE("evaluation and the training state wait for an overlapping update, under every policy", "[device][offload]") {
  at::set_num_threads(1);
  auto run = GENERATE(device_run("fsdp", 2), device_run("fsdp", 2, {{"cpu_offload", true}}),
                      device_run("zero", 2, testing::offload_options({2, "cpu", ""}, "")),
                      device_run("zero", 2, testing::offload_options({3, "cpu", "cpu"}, "")));
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
  for (const auto& forms :
       {testing::whole_copies(), testing::fsdp_forms(), testing::zero_forms(), testing::recomputing_forms(),
        testing::forms_reducing_each_micro_batch(), testing::offloading_forms(folder), testing::frozen_forms()})
    for (const auto& form : forms) list.push_back({form.label, [run = form.run] { return train_on_devices(run); }});
  for (const auto& run :
       {device_run("fsdp", 2, {{"cpu_offload", true}}),
        device_run("zero", 2, testing::offload_options({2, "cpu", ""}, "")),
        device_run("zero", 2, testing::offload_options({3, "cpu", "cpu"}, "")), device_run("fsdp", 2)})
    for (bool evaluates : {false, true})
      list.push_back({"between steps", [run, evaluates] {
                        TinyResult result;
                        std::mutex mutex;
                        use_between_steps(run, evaluates, result, mutex);
                        return result;
                      }});
  return list;
}

int64_t peak_of_all_devices() {
  int64_t sum = 0;
  for (int device = 0; device < device_count; ++device) sum += memory_statistics(device).waiting_peak;
  return sum;
}

void reset_peaks() {
  for (int device = 0; device < device_count; ++device) reset_peak(device);
}

/// The peak of freed memory that copies still use, without any change. By it a wait that bounds memory is noticed.
int64_t usual_peak(const Workload& workload, const Policy& policy) {
  Simulation simulation(policy);
  reset_peaks();
  workload.train();
  take_reports();
  return peak_of_all_devices();
}

/// Waits whose only effect is that less memory is in use.
bool bounds_memory(const std::string& place) { return place.starts_with("runner::GradientReduction::move_to_host"); }

/// Whether the device notices that `left_out` is missing: a report, an error, another result, or more memory.
bool is_noticed(const Workload& workload, const std::string& left_out, const Policy& policy) {
  const int64_t usual = bounds_memory(left_out) ? usual_peak(workload, policy) : 0;
  watch_waits(left_out);
  bool noticed = false;
  try {
    Simulation simulation(policy);
    reset_peaks();
    auto result = workload.train();
    noticed = result.losses != workload.expected.losses || result.state != workload.expected.state ||
              (usual > 0 && peak_of_all_devices() > usual);
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
