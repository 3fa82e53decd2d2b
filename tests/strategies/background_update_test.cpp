// The update runs in the background of the next forward pass. Tests check that it gives the same bits as an update that
// ends with its step, the order of events, and that errors and the end reach the rank's thread.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <chrono>
#include <condition_variable>
#include <stdexcept>
#include <thread>

#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/fsdp/entry.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/offload_forms.hpp"
#include "tests/support/rank_check.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// The forms with the optimizer state in host memory.
std::vector<OffloadForm> forms_beside() { return {{1, "cpu", ""}, {2, "cpu", ""}, {3, "cpu", ""}, {3, "cpu", "cpu"}}; }

TinyRun zero_run(const OffloadForm& form, int world_size) {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = world_size;
  run.options = options_of(form, "");
  run.options["reduce_bucket_size"] = 5000;  // several units in stages 1 and 2
  return run;
}

/// The events of one rank, in order. Other threads can wait for an event.
class History {
 public:
  void add(const std::string& what) {
    std::lock_guard lock(mutex_);
    list_.push_back(what);
    added_.notify_all();
  }
  /// Returns false if `what` has not happened `times` times within 30 s.
  bool wait_for(const std::string& what, int64_t times) {
    std::unique_lock lock(mutex_);
    return added_.wait_for(lock, std::chrono::seconds(30),
                           [&] { return std::count(list_.begin(), list_.end(), what) >= times; });
  }
  /// The index of the nth `what` in the list (n starts at 1); -1 if there is none.
  int64_t place(const std::string& what, int64_t nth) const {
    for (size_t i = 0; i < list_.size(); ++i)
      if (list_[i] == what && --nth == 0) return static_cast<int64_t>(i);
    return -1;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::string> list_;
};

std::string named(const char* what, size_t index) { return what + std::to_string(index); }

auto beside(ShardEvents events = {}) {
  return [events](StrategySetup setup) { return make_apart(std::move(setup), events); };
}

}  // namespace

TEST_CASE("an update in the background gives the bits of one in the foreground", "[parity][offload]") {
  at::set_num_threads(1);
  TinyRun run;
  run.accumulation = GENERATE(1, 3);
  run.family = run.accumulation == 1 ? "gpt" : "llama";
  bool clipped = GENERATE(false, true);
  if (clipped) run.clip_norm = 0.5;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed", "16-mixed");
  static EveryNth chosen(5);
  for (int world_size : {1, 2, 3}) {
    for (const auto& form : forms_beside()) {
      if (!chosen()) continue;
      TinyRun other = zero_run(form, world_size);
      other.n_layers = 2;
      other.steps = 3;
      other.family = run.family;
      other.accumulation = run.accumulation;
      other.clip_norm = run.clip_norm;
      other.precision = run.precision;
      if (run.precision == "16-mixed") {
        other.options.update({{"initial_scale_power", 20}, {"hysteresis", 1}});  // causes overflows
        other.steps = 7;
      }
      INFO("stage " << form.stage << ", parameters " << form.parameters << ", " << run.family << ", " << run.precision
                    << ", accumulation " << run.accumulation << ", clipping " << clipped << ", " << world_size
                    << " ranks");
      auto before = train_tiny(other);  // on CPU, offload to host memory has no effect
      auto skipped =
          std::count_if(before.norms.begin(), before.norms.end(), [](double n) { return !std::isfinite(n); });
      CHECK((skipped > 0) == (run.precision == "16-mixed"));
      CHECK(std::isfinite(before.norms.back()));
      other.make = beside();
      check_equal_with_norms(train_tiny(other), before);
      if (run.precision != "32-true" || clipped || run.accumulation > 1) continue;
      other.strategy = "ddp";
      other.options = nlohmann::json::object();
      other.make = nullptr;
      auto ddp = train_tiny(other);
      CHECK(ddp.losses == before.losses);
      CHECK(ddp.state == before.state);
    }
  }
}

TEST_CASE("other optimizers, precisions, value clipping and fsdp's groups give the same bits", "[parity][offload]") {
  at::set_num_threads(1);
  TinyRun run = zero_run(GENERATE(from_range(forms_beside())), 2);
  run.n_layers = 2;
  run.steps = 3;
  SECTION("sgd with momentum") {
    run.optimizer.kind = OptimizerConfig::Kind::sgd;
    run.optimizer.momentum = 0.9;
    run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  }
  SECTION("coupled decay in groups") {
    run.optimizer.kind = OptimizerConfig::Kind::adam;
    run.optimizer.groups = {{"*norm*", 5e-3, 0.2}};
  }
  SECTION("master parameters in other dtypes") { run.precision = GENERATE(as<std::string>(), "64-true", "bf16-true"); }
  SECTION("clipping by value") { run.clip_value = 1e-3; }
  SECTION("predivided gradients, broadcast of parameters") {
    run.options.update({{"gradient_predivide_factor", 8.0}, {"allgather_partitions", false}});
  }
  SECTION("groups of ranks") {
    run.world_size = 4;
    run.options["mics_shard_size"] = 2;
  }
  auto before = train_tiny(run);
  run.make = beside();
  check_equal_with_norms(train_tiny(run), before);
}

TEST_CASE("fsdp with its optimizer in separate host memory gives the same bits", "[parity][offload]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "fsdp";
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  for (std::string sharding : {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD"}) {
    run.world_size = sharding == "HYBRID_SHARD" ? 4 : 2;
    run.options = {{"sharding_strategy", sharding}};
    if (sharding == "HYBRID_SHARD") run.options["hybrid_group_size"] = 2;
    run.make = nullptr;
    auto before = train_tiny(run);
    run.make = [](StrategySetup setup) {
      ParallelPlan plan = fsdp_plan(setup.job);
      plan.separate_host = true;
      plan.optimizer = Tier::host;
      for (auto& unit : plan.units) unit.tier = Tier::host;
      return make_executor(std::move(setup), std::move(plan));
    };
    INFO(sharding << ", " << run.precision);
    check_equal_with_norms(train_tiny(run), before);
  }
}

namespace {

/// The units that each block uses, gathered or resident.
std::vector<std::vector<size_t>> units_of(const ModelSpec& spec, const ParallelPlan& plan) {
  auto units = resident_units_of_blocks(spec, plan);
  auto gathered = units_of_blocks(plan, spec.blocks.size());
  for (size_t block = 0; block < units.size(); ++block)
    units[block].insert(units[block].end(), gathered[block].begin(), gathered[block].end());
  return units;
}

}  // namespace

TEST_CASE("forward continues before the update of a later unit starts, and waits before it uses the unit",
          "[offload][order]") {
  at::set_num_threads(1);
  auto form = GENERATE(from_range(forms_beside()));
  bool evaluates = GENERATE(false, true);
  TinyRun run = zero_run(form, 2);
  ModelSpec spec = tiny_spec(run);
  ParallelPlan plan = plan_apart(tiny_job(run, spec));
  REQUIRE(plan.updates_beside());
  auto units = units_of(spec, plan);
  size_t held = units_in_forward(spec, plan).back(), first_use = 0;
  while (std::find(units[first_use].begin(), units[first_use].end(), held) == units[first_use].end()) ++first_use;
  REQUIRE(first_use >= 2);
  std::string before_use = named("forward ", first_use - 1);

  std::vector<History> histories(2);
  run_ranks(run.world_size, [&](World& world) {
    History& history = histories[static_cast<size_t>(world.rank)];
    ShardEvents events;
    events.forward_begins = [&](size_t block) { history.add(named("forward ", block)); };
    // Delays the update until the second forward has reached the block before the first use of the unit. If that block
    // waited for all updates, both would wait until the timeout.
    events.update_begins = [&](size_t unit) {
      if (unit == held && !history.wait_for(before_use, 2)) history.add("gave up");
    };
    events.update_ended = [&](size_t unit) { history.add(named("updated ", unit)); };
    TinyRun mine = run;
    mine.make = beside(events);
    with_strategy(mine, world, [&](Strategy& strategy) {
      strategy.step(tiny_input(mine, world.rank, 0));
      if (evaluates)
        strategy.evaluate(tiny_batch(mine, 0, 4));
      else
        strategy.step(tiny_input(mine, world.rank, 1));
    });
  });
  INFO("stage " << form.stage << ", parameters " << form.parameters << ", evaluates " << evaluates);
  for (const auto& history : histories) {
    CHECK(history.place("gave up", 1) == -1);
    CHECK(history.place(before_use, 2) < history.place(named("updated ", held), 1));
    for (size_t block = 0; block < units.size(); ++block)
      for (size_t unit : units[block]) {
        INFO("block " << block << ", unit " << unit);
        REQUIRE(history.place(named("updated ", unit), 1) >= 0);
        CHECK(history.place(named("updated ", unit), 1) < history.place(named("forward ", block), 2));
      }
  }
}

TEST_CASE("training state right after a step has the updated values, and can be loaded", "[offload][order]") {
  at::set_num_threads(1);
  auto form = GENERATE(from_range(forms_beside()));
  TinyRun run = zero_run(form, 2);
  run.steps = 2;
  run.precision = "bf16-mixed";
  auto two = train_tiny(run);
  run.steps = 3;
  auto three = train_tiny(run);
  // Every update is late, so a missing wait is detected.
  ShardEvents late;
  late.update_begins = [](size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  run.make = beside(late);
  std::map<std::string, std::vector<float>> saved, last;
  std::vector<double> losses(2);
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 2; ++step) strategy.step(tiny_input(run, world.rank, step));
      collect_state(strategy, saved, mutex);
      auto scalars = strategy.scalars();
      strategy.step(tiny_input(run, world.rank, 0));  // loading undoes this step
      for (const auto& tensor : strategy.state()) {
        if (tensor.numel() == 0) continue;
        const auto& whole = saved.at(tensor.name);
        auto values = torch::empty({tensor.numel()});
        std::copy_n(whole.begin() + tensor.offset, tensor.numel(), values.data_ptr<float>());
        tensor.write(0, values);
      }
      strategy.load_scalars(scalars);
      strategy.state_loaded();
      auto outcome = strategy.step(tiny_input(run, world.rank, 2));
      losses[static_cast<size_t>(world.rank)] = outcome.loss;
      collect_state(strategy, last, mutex);
    });
  });
  INFO("stage " << form.stage << ", parameters " << form.parameters);
  CHECK(saved == two.state);
  CHECK(losses == std::vector<double>(2, three.losses.back()));
  CHECK(last == three.state);
}

TEST_CASE("an error of an update is thrown by the next call and by teardown, with its type", "[offload]") {
  at::set_num_threads(1);
  auto form = GENERATE(from_range(forms_beside()));
  auto call = GENERATE(as<std::string>(), "step", "evaluate", "state", "views_to_save", "state_loaded", "teardown");
  TinyRun run = zero_run(form, 2);
  ModelSpec spec = tiny_spec(run);
  size_t third = units_in_forward(spec, plan_apart(tiny_job(run, spec))).at(2);
  std::vector<std::string> texts(2);
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    int updates = 0;
    ShardEvents events;
    events.update_begins = [&, third](size_t unit) {
      if (unit == third && ++updates == 2) throw std::range_error("no memory behind unit " + std::to_string(unit));
    };
    TinyRun mine = run;
    mine.make = beside(events);
    std::string& text = texts[static_cast<size_t>(world.rank)];
    try {
      with_strategy(mine, world, [&](Strategy& strategy) {
        for (int64_t step = 0; step < 2; ++step) strategy.step(tiny_input(mine, world.rank, step));
        try {
          if (call == "step") strategy.step(tiny_input(mine, world.rank, 2));
          if (call == "evaluate") strategy.evaluate(tiny_batch(mine, 0, 4));
          if (call == "state") (void)strategy.state();
          if (call == "views_to_save") (void)strategy.views_to_save();
          if (call == "state_loaded") strategy.state_loaded();
        } catch (const std::range_error& error) {
          text = error.what();
        }
      });
      text += ", but not by teardown";
    } catch (const std::range_error& error) {
      if (call == "teardown") text = error.what();
      if (text != error.what()) text += "; teardown: " + std::string(error.what());
    }
  });
  INFO("stage " << form.stage << ", parameters " << form.parameters << ", " << call);
  CHECK(texts == std::vector<std::string>(2, "no memory behind unit " + std::to_string(third)));
}

TEST_CASE("a strategy destroyed during an update ends the update and frees its memory", "[offload]") {
  at::set_num_threads(1);
  auto form = GENERATE(from_range(forms_beside()));
  bool torn_down = GENERATE(false, true);
  TinyRun run = zero_run(form, 1);
  ModelSpec spec = tiny_spec(run);
  size_t second = units_in_forward(spec, plan_apart(tiny_job(run, spec))).at(1);
  MemoryAccount account;
  std::atomic<int> ended = 0;
  History history;
  std::jthread releases;
  run_ranks(1, [&](World& world) {
    AccountScope scope(account);
    ShardEvents events;
    events.update_begins = [&](size_t unit) {
      if (unit != second) return;
      history.add("in the middle");
      history.wait_for("go", 1);
    };
    events.update_ended = [&](size_t) { ++ended; };
    auto model = build_model(tiny_model(run), spec);
    auto specs = model->spec.parameters();
    ParameterSource source = [&](size_t slot, int64_t offset, std::span<float> out) {
      initialize_slice(*specs[slot], 7, offset, out);
    };
    auto strategy = make_apart({world, *model, tiny_job(run, model->spec), run.optimizer, source, {}, {}}, events);
    strategy->module_to_device();
    strategy->step(tiny_input(run, 0, 0));
    history.wait_for("in the middle", 1);
    RANK_CHECK(ended == 1);
    releases = std::jthread([&] { history.add("go"); });
    if (torn_down) strategy->teardown();
    strategy.reset();
    int after = ended;
    RANK_CHECK(after >= 2);  // the running update is finished; later ones may be
    if (torn_down)
      RANK_CHECK(after == static_cast<int>(units_in_forward(spec, plan_apart(tiny_job(run, spec))).size()));
  });
  releases.join();
  INFO("stage " << form.stage << ", parameters " << form.parameters << ", torn down " << torn_down);
  CHECK(account.current() == 0);
}
