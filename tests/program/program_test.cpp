// The step as a program: its instructions in exact order for small plans, and what holds for every plan.
#include "strategies/program/program.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "runner/models/models.hpp"
#include "strategies/catalog.hpp"
#include "strategies/fsdp/entry.hpp"
#include "strategies/zero/entry.hpp"

using namespace runner;

namespace {

ModelSpec tiny_spec(const std::string& family, int64_t layers, bool tied) {
  Recipe::Model model;
  model.name = family;
  model.n_layers = layers;
  model.dim = 32;
  model.n_heads = 4;
  if (family == "llama") model.n_kv_heads = 2;
  model.multiple_of = 16;
  model.max_seq_len = 16;
  model.tie_embeddings = tied;
  model.loss_chunk_tokens = 40;
  return make_spec(model, /*vocab_size=*/61, /*seq_len=*/16);
}

/// A job whose plan comes from the options, as on a device with streams and memory of its own if `on_device`.
struct Case {
  std::string strategy;
  nlohmann::json options;
  int world_size = 2;
  int64_t micro_batches = 1;
  bool on_device = false;
  std::vector<bool> recompute = {};
  std::string precision = "32-true";

  Job job(const ModelSpec& spec) const {
    Job job;
    job.model = &spec;
    job.precision = precision_policy(precision);
    job.mesh = data_mesh(world_size);
    job.local_size = world_size;
    job.accumulation = micro_batches;
    job.recompute = recompute;
    if (on_device)
      job.accelerator = {.type = "cuda",
                         .own_memory = true,
                         .streams = true,
                         .pinned = true,
                         .host_kernels = false,
                         .collectives = "nccl"};
    job.options = with_defaults(find_strategy(strategy)->entry->options, options);
    return job;
  }
};

ParallelPlan plan_of(const Case& test, const Job& job) {
  return test.strategy == "zero" ? zero_plan(job) : fsdp_plan(job);
}

std::string text_of(const Case& test, const ModelSpec& spec) {
  const Job job = test.job(spec);
  std::string text;
  for (const auto& instruction : step_program(spec, plan_of(test, job), test.recompute, test.micro_batches))
    text += to_text(instruction) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a unit that is used again in backward is gathered again, and reduced after its backward") {
  const auto spec = tiny_spec("gpt", 1, /*tied=*/false);  // block 0: embedding, 1: attention, 2: MLP, 3: head
  CHECK(text_of({.strategy = "fsdp", .options = {{"sharding_strategy", "FULL_SHARD"}}}, spec) == R"(start_gather unit 0
wait_gather unit 0
forward block 0 of micro-batch 0
release unit 0
start_gather unit 1
wait_gather unit 1
forward block 1 of micro-batch 0
forward block 2 of micro-batch 0
release unit 1
start_gather unit 2
wait_gather unit 2
forward block 3 of micro-batch 0
backward block 3 of micro-batch 0
start_reduce unit 2
wait_reduce unit 2
release unit 2
start_gather unit 1
wait_gather unit 1
backward block 2 of micro-batch 0
backward block 1 of micro-batch 0
start_reduce unit 1
wait_reduce unit 1
release unit 1
backward block 0 of micro-batch 0
start_reduce unit 0
wait_reduce unit 0
norm
update unit 0
update unit 1
update unit 2
)");
}

TEST_CASE("the blocks of a layer are recomputed together, a single block by itself") {
  const auto spec = tiny_spec("gpt", 2, /*tied=*/false);  // 0: embedding, 1 and 2: a layer, 3 and 4: a layer, 5: head
  const auto backward_of = [&](const std::vector<bool>& recompute) {
    const auto text =
        text_of({.strategy = "zero", .options = {{"stage", 1}}, .world_size = 1, .recompute = recompute}, spec);
    const auto end = text.find("norm\n"), begin = text.find("backward block 5");
    std::string blocks;  // without reductions
    std::istringstream lines(text.substr(begin, end - begin));
    for (std::string line; std::getline(lines, line);)
      if (line.find(" block ") != std::string::npos) blocks += line.substr(0, line.find(" of ")) + "\n";
    return blocks;
  };
  CHECK(backward_of({false, true, true, true, true, false}) == R"(backward block 5
recompute block 3
recompute block 4
backward block 4
backward block 3
recompute block 1
recompute block 2
backward block 2
backward block 1
backward block 0
)");
  CHECK(backward_of({false, false, true, true, false, false}) == R"(backward block 5
backward block 4
recompute block 3
backward block 3
recompute block 2
backward block 2
backward block 1
backward block 0
)");
}

TEST_CASE("BACKWARD_POST gathers the next unit after the last backward of a unit of several blocks") {
  const auto spec = tiny_spec("gpt", 2, /*tied=*/false);
  const auto text = text_of({.strategy = "fsdp",
                             .options = {{"sharding_strategy", "FULL_SHARD"}, {"backward_prefetch", "BACKWARD_POST"}},
                             .on_device = true},
                            spec);
  const auto first = text.find("backward block 4"), last = text.find("backward block 3"),
             next = text.find("start_gather unit 1", last);
  REQUIRE(next != std::string::npos);
  CHECK(text.substr(first, last - first).find("start_gather unit 1") == std::string::npos);
  CHECK(next < text.find("backward block 2"));
}

TEST_CASE("an update that overlaps with forward ends before the first use of its unit") {
  const auto spec = tiny_spec("gpt", 1, /*tied=*/false);
  const Case test{.strategy = "zero", .options = {{"stage", 2}, {"offload_optimizer", true}}, .on_device = true};
  const auto text = text_of(test, spec);
  INFO(text);
  CHECK(text.starts_with("update unit 0\ngather_updated unit 0\nforward block 0 of micro-batch 0\n"));
  CHECK(text.ends_with("norm\n"));
}

TEST_CASE("on a device, gathers start in advance and reductions end during the next backward") {
  const auto spec = tiny_spec("gpt", 1, /*tied=*/false);
  CHECK(text_of({.strategy = "fsdp", .options = {{"sharding_strategy", "FULL_SHARD"}}, .on_device = true}, spec) ==
        R"(start_gather unit 0
wait_gather unit 0
start_gather unit 1
forward block 0 of micro-batch 0
release unit 0
wait_gather unit 1
start_gather unit 2
forward block 1 of micro-batch 0
forward block 2 of micro-batch 0
release unit 1
wait_gather unit 2
forward block 3 of micro-batch 0
start_gather unit 1
backward block 3 of micro-batch 0
start_reduce unit 2
release unit 2
wait_gather unit 1
backward block 2 of micro-batch 0
backward block 1 of micro-batch 0
wait_reduce unit 2
start_reduce unit 1
release unit 1
backward block 0 of micro-batch 0
wait_reduce unit 1
start_reduce unit 0
wait_reduce unit 0
norm
update unit 0
update unit 1
update unit 2
)");
}

namespace {

/// What a step of the plan calls, by formulas for units instead of its program.
std::map<std::string, std::pair<int64_t, int64_t>> traffic_by_formula(const Job& job, const ParallelPlan& plan) {
  std::map<std::string, std::pair<int64_t, int64_t>> sums;
  const auto add = [&](const char* kind, int ranks, int stride, int64_t calls, int64_t bytes) {
    if (ranks == 1) return;
    auto& sum = sums[fmt::format("{} {} {}", kind, ranks, stride)];
    sum.first += calls, sum.second += calls * bytes;
  };
  const int64_t reductions = plan.reduce_every_micro_batch ? job.accumulation : 1;
  for (const auto& unit : plan.units) {
    const auto layout = make_flat_layout(job.model->parameters(), unit.slots, plan.shards());
    const int64_t gathered = layout.total * bytes_of(plan.parameter), reduced = layout.total * bytes_of(plan.reduce);
    const bool again = !unit.keep_after_forward && unit.first_needed_in_backward < job.model->blocks.size();
    if (unit.resident && plan.gather_by_broadcast)
      add("broadcast", plan.shards(), 1, plan.shards(), gathered / plan.shards());
    else
      add("all_gather", plan.shards(), 1, unit.resident ? 1 : job.accumulation * (again ? 2 : 1), gathered);
    add(plan.reduce_by_all_reduce ? "all_reduce" : "reduce_scatter", plan.shards(), 1, reductions, reduced);
    add("all_reduce", plan.copies(), plan.shards(), reductions, reduced / plan.shards());
  }
  return sums;
}

HostWork host_work_by_formula(const Job& job, const ParallelPlan& plan) {
  HostWork work;
  if (!plan.separate_host) return work;
  const int64_t reductions = plan.reduce_every_micro_batch ? job.accumulation : 1;
  for (const auto& unit : plan.units) {
    const int64_t shard = make_flat_layout(job.model->parameters(), unit.slots, plan.shards()).shard;
    const bool again = !unit.keep_after_forward && unit.first_needed_in_backward < job.model->blocks.size();
    const bool on_device = unit.resident || unit.tier == Tier::device;
    if (plan.optimizer != Tier::device) {
      work.updated += shard;
      work.copied_bytes += reductions * shard * bytes_of(plan.gradient);
      if (on_device) work.copied_bytes += shard * bytes_of(plan.parameter);
    }
    if (!on_device) work.copied_bytes += job.accumulation * (again ? 2 : 1) * shard * bytes_of(plan.parameter);
  }
  return work;
}

/// Plays a program and checks each instruction against the state that those before it have left.
void check_program(const Program& program, const ModelSpec& spec, const ParallelPlan& plan, int64_t micro_batches) {
  const size_t units = plan.units.size();
  const auto units_of = units_of_blocks(plan, spec.blocks.size());
  std::vector<bool> started(units), gathered(units), reducing(units);
  std::vector<int64_t> updates(units), reductions(units);
  std::map<std::pair<size_t, int64_t>, int> forwards, backwards;
  for (const auto& i : program) {
    INFO(to_text(i));
    const bool of_unit = i.block == Instruction::none && i.unit != Instruction::none;
    if (of_unit) REQUIRE(i.unit < units);
    switch (i.op) {
      case Op::start_read:
        CHECK(plan.units[i.unit].tier == Tier::nvme);
        CHECK_FALSE(started[i.unit]);
        break;
      case Op::start_gather:
        CHECK_FALSE(started[i.unit]);
        CHECK_FALSE(plan.units[i.unit].resident);
        started[i.unit] = true;
        break;
      case Op::wait_gather:
        CHECK(started[i.unit]);
        CHECK_FALSE(gathered[i.unit]);
        gathered[i.unit] = true;
        break;
      case Op::release:
        CHECK(gathered[i.unit]);
        started[i.unit] = gathered[i.unit] = false;
        break;
      case Op::forward:
      case Op::recompute:
      case Op::backward: {
        for (size_t u : units_of[i.block])
          if (i.op != Op::backward || plan.units[u].first_needed_in_backward <= i.block) CHECK(gathered[u]);
        if (i.op == Op::forward) ++forwards[{i.block, i.micro_batch}];
        if (i.op == Op::backward) {
          CHECK(forwards[{i.block, i.micro_batch}] == 1);
          ++backwards[{i.block, i.micro_batch}];
        }
        break;
      }
      case Op::start_reduce:
        CHECK_FALSE(reducing[i.unit]);
        reducing[i.unit] = true;
        if (i.axis != Axis::replicate || plan.shards() == 1) ++reductions[i.unit];
        break;
      case Op::wait_reduce:
        CHECK(reducing[i.unit]);
        reducing[i.unit] = false;
        break;
      case Op::update:
        ++updates[i.unit];
        break;
      case Op::gather_updated:
        CHECK(updates[i.unit] == 1);
        break;
      case Op::receive_input:
      case Op::send_output:
      case Op::receive_gradient:
      case Op::send_gradient:
      case Op::backward_input:
      case Op::backward_weight:
        FAIL("a transfer or a split backward without a pipeline");
        break;
      case Op::norm:
        for (size_t u = 0; u < units; ++u) CHECK_FALSE(reducing[u]);
        break;
    }
  }
  for (size_t u = 0; u < units; ++u) {
    const bool frozen = plan.units[u].frozen;
    CHECK(updates[u] == (frozen ? 0 : 1));
    CHECK(reductions[u] == (frozen || plan.takes_gradients() ? 0 : plan.reduce_every_micro_batch ? micro_batches : 1));
    CHECK_FALSE(started[u]);
  }
  CHECK(backwards.size() == (spec.blocks.size() - spec.first_trained_block()) * static_cast<size_t>(micro_batches));
  for (const auto& [key, count] : backwards) CHECK(count == 1);
}

/// Random forms of fsdp and zero. Options that a job refuses are left out.
Case random_case(std::mt19937& random, size_t blocks) {
  const auto pick = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> list{values...};
    return list[random() % list.size()];
  };
  Case test;
  test.on_device = pick(false, true);
  test.world_size = pick(1, 2, 3, 4, 8);
  test.micro_batches = pick(1, 2, 3, 4, 7);
  test.precision = pick(std::string("32-true"), std::string("bf16-mixed"));
  for (size_t b = 0; b < blocks; ++b) test.recompute.push_back(b > 0 && pick(false, true));
  if (pick(false, true)) {
    test.strategy = "fsdp";
    const std::string sharding = pick("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD");
    test.options = {{"sharding_strategy", sharding},
                    {"auto_wrap_policy", pick("block", "size", "none")},
                    {"min_num_params", 10'000},
                    {"reduce_every_micro_batch", pick(false, true)},
                    {"backward_prefetch", pick("BACKWARD_PRE", "BACKWARD_POST", "NONE")},
                    {"forward_prefetch", pick(false, true)}};
    if (sharding == "HYBRID_SHARD") test.options["hybrid_group_size"] = test.world_size % 2 == 0 ? 2 : 1;
    if (test.on_device && pick(false, true)) test.options["cpu_offload"] = true;
    return test;
  }
  test.strategy = "zero";
  const int stage = pick(1, 2, 3);
  test.options = {{"stage", stage}, {"reduce_bucket_size", pick(5000, 500'000'000)}};
  if (pick(false, true)) test.options.update({{"reduce_scatter", false}, {"allgather_partitions", false}});
  if (stage == 3)
    test.options.update({{"stage3_param_persistence_threshold", pick(0, 500)},
                         {"stage3_max_reuse_distance", pick(0, 30'000)},
                         {"stage3_prefetch_bucket_size", pick(1, 30'000)}});
  if (test.world_size % 2 == 0) test.options["mics_shard_size"] = pick(2, test.world_size);
  if (test.on_device && pick(false, true)) test.options["offload_optimizer"] = true;
  if (test.on_device && stage == 3 && pick(false, true)) test.options["offload_parameters"] = true;
  return test;
}

}  // namespace

TEST_CASE("programs of random plans gather what blocks read, reduce each unit, and have the traffic of the formulas") {
  std::mt19937 random(7);
  for (const char* family : {"gpt", "llama"})
    for (bool tied : {true, false}) {
      const auto spec = tiny_spec(family, 4, tied);
      for (int n = 0; n < 200; ++n) {
        const Case test = random_case(random, spec.blocks.size());
        const Job job = test.job(spec);
        const auto plan = plan_of(test, job);
        INFO(test.strategy << " " << test.options.dump() << ", " << test.world_size << " ranks, " << test.micro_batches
                           << " micro-batches, on a device " << test.on_device << ", " << family << ", tied " << tied);
        check_program(step_program(spec, plan, test.recompute, test.micro_batches), spec, plan, test.micro_batches);
        std::map<std::string, std::pair<int64_t, int64_t>> traffic;
        for (const auto& part : program_traffic(job, plan))
          traffic[fmt::format("{} {} {}", part.collective, part.ranks, part.stride)] = {part.calls, part.payload_bytes};
        CHECK(traffic == traffic_by_formula(job, plan));
        const auto work = program_host_work(job, plan), expected = host_work_by_formula(job, plan);
        CHECK(work.copied_bytes == expected.copied_bytes);
        CHECK(work.updated == expected.updated);
      }
    }
}

TEST_CASE(
    "programs with frozen parameters neither reduce nor update them, and end backward at the first trained block") {
  std::mt19937 random(11);
  for (bool tied : {true, false}) {
    auto spec = tiny_spec("gpt", 4, tied);
    for (int n = 0; n < 200; ++n) {
      bool any_trained = false;
      const auto below = static_cast<size_t>(random() % spec.blocks.size());  // blocks before it are frozen
      for (size_t b = 0; b < spec.blocks.size(); ++b)
        for (auto& parameter : spec.blocks[b].parameters) {
          parameter.trainable = b >= below && random() % 2 == 0;
          any_trained |= parameter.trainable;
        }
      if (!any_trained) continue;
      const Case test = random_case(random, spec.blocks.size());
      const auto plan = plan_of(test, test.job(spec));
      INFO(test.strategy << " " << test.options.dump() << ", " << test.world_size << " ranks, " << test.micro_batches
                         << " micro-batches, on a device " << test.on_device << ", tied " << tied);
      check_program(step_program(spec, plan, test.recompute, test.micro_batches), spec, plan, test.micro_batches);
    }
  }
}

TEST_CASE("little communication is mostly hidden, much communication is not, and prefetching hides more") {
  const auto spec = tiny_spec("gpt", 8, /*tied=*/false);
  const auto share_of = [&](const Case& test, double ratio) {
    const Job job = test.job(spec);
    for (const auto& [at, share] : exposed_communication(job, plan_of(test, job)))
      if (at == ratio) return share;
    return -1.0;
  };
  const nlohmann::json full = {{"sharding_strategy", "FULL_SHARD"}};
  const Case overlaps{.strategy = "fsdp", .options = full, .on_device = true};
  const Case alone{.strategy = "fsdp", .options = full};
  CHECK(std::abs(share_of(alone, 1) - 1) < 1e-12);  // every collective is waited for at once
  // Little communication hides except the first gather and the last reduction. Computation cannot hide more
  // communication than its own time.
  CHECK(share_of(overlaps, 0.125) > 0);
  CHECK(share_of(overlaps, 0.125) < 0.3);
  CHECK(share_of(overlaps, 16) > 15.0 / 16 - 1e-9);
  CHECK(share_of(overlaps, 16) < 1);
  // Without prefetching, gathers are exposed in backward.
  const Case later{.strategy = "fsdp",
                   .options = {{"sharding_strategy", "FULL_SHARD"}, {"backward_prefetch", "NONE"}},
                   .on_device = true};
  CHECK(share_of(later, 0.125) > share_of(overlaps, 0.125) + 0.1);
  // A job without collectives has no share.
  const Case one{.strategy = "fsdp", .options = full, .world_size = 1, .on_device = true};
  const Job job = one.job(spec);
  CHECK(exposed_communication(job, plan_of(one, job)).empty());
}
