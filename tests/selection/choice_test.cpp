// Choices as data: tests/cases/selection/plans.txt has a line "> RECIPE on DEVICES [x NODES] [with KEY=VALUE ...]" per
// case, and the answer below it. RUNNER_UPDATE_CASES=1 rewrites the answers.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/step_time.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/selection/what_if.hpp"
#include "tests/selection/table_clock.hpp"

using namespace runner;

namespace {

const fs::path folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/selection";

Topology topology_of_words(const std::string& words) {
  std::istringstream in(words);
  std::string kind, cross;
  int devices = 1, nodes = 1;
  in >> kind >> devices >> cross >> nodes;
  if (kind != "cpu") return topology_of(*find_device_kind(kind), devices, cross.empty() ? 1 : nodes);
  Topology topology;
  topology.devices_per_node = devices;
  topology.cores = 8;
  topology.host_memory_bytes = int64_t{16} << 30;
  return topology;
}

StepClock clock_of(const Topology& topology) {
  StepClock clock = topology.kind ? table_clock(topology.kind->name, topology.devices_per_node) : StepClock();
  clock.error = [](const Job&, const StepTime&) { return 0.25; };
  return clock;
}

std::string answer(const std::string& question) {
  size_t on = question.find(" on "), with = question.find(" with ");
  std::string file = question.substr(0, on) + ".toml";
  std::vector<std::string> overrides;
  if (with != std::string::npos) overrides = split(question.substr(with + 6), ' ');
  Topology topology = topology_of_words(question.substr(on + 4, with == std::string::npos ? with : with - on - 4));
  try {
    Recipe recipe = load_whole_recipe((folder / file).string(), overrides);
    Plan plan = make_plan(recipe, topology, std::nullopt, clock_of(topology));
    const Candidate& chosen = plan.choice.plan();
    std::string text = fmt::format("{}, micro-batch {} x {} x {}, {} of {} layers recomputed, {} a rank\n",
                                   label(chosen), chosen.job.micro_batch_size, chosen.job.world_size(),
                                   chosen.job.accumulation, chosen.job.model->layers_with(chosen.job.recompute),
                                   recipe.model.n_layers, format_bytes(chosen.bytes));
    text += "because " + plan.reason + "\nrule: " + plan.rule + "\n";
    for (const auto& advice : plan.choice.advice) text += "advice: " + advice + "\n";
    return text;
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  } catch (const Error& error) {
    return std::string(error.what()) + "\n";
  }
}

struct Case {
  std::string question, answer;
};

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::istringstream in(read_file(folder / "plans.txt"));
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("> "))
      cases.push_back({line.substr(2), ""});
    else if (!line.empty())
      cases.back().answer += line + "\n";
  }
  return cases;
}

}  // namespace

TEST_CASE("the plans match plans.txt") {
  auto cases = read_cases();
  REQUIRE(cases.size() >= 80);
  std::string written;
  for (const auto& one : cases) {
    INFO(one.question);
    std::string now = answer(one.question);
    if (std::getenv("RUNNER_UPDATE_CASES"))
      written += "> " + one.question + "\n" + now + "\n";
    else
      CHECK(now == one.answer);
  }
  if (!written.empty()) std::ofstream(folder / "plans.txt") << written;
}

TEST_CASE("the documented rules are applied on both sides of every boundary") {
  auto rule = [](int64_t parameters, int devices, int nodes, bool replica_fits) {
    return rule_book().match({parameters, devices, nodes, replica_fits}).id;
  };
  struct Row {
    int64_t parameters;
    int devices, nodes;
    bool replica_fits;
    const char* rule;
  };
  const int64_t small = 499'999'999, medium = 500'000'000, below_large = 2'999'999'999, large = 3'000'000'000;
  const Row rows[] = {
      {small, 1, 1, true, "small-single"},       {medium, 1, 1, true, "large-single"},
      {large, 1, 1, false, "large-single"},      {small, 2, 1, true, "small-ddp"},
      {small, 2, 1, false, "small-ddp"},         {small, 2, 2, true, "small-nodes"},
      {medium, 2, 2, true, "large-nodes"},       {large, 16, 2, false, "large-nodes"},
      {medium, 2, 1, true, "medium-roomy"},      {medium, 2, 1, false, "medium-limited"},
      {below_large, 8, 1, true, "medium-roomy"}, {below_large, 8, 1, false, "medium-limited"},
      {large, 8, 1, true, "large-roomy"},        {large, 8, 1, false, "large-limited"},
      {0, 1, 1, true, "small-single"},           {int64_t{1} << 50, 8, 1, false, "large-limited"},
  };
  for (const auto& row : rows) {
    INFO(row.parameters << " parameters, " << row.devices << " devices, " << row.nodes << " nodes");
    CHECK(rule(row.parameters, row.devices, row.nodes, row.replica_fits) == row.rule);
  }
}

TEST_CASE("every rule has a source and existing forms, and every form has a strategy with its options") {
  for (const auto& rule : rule_book().rules) {
    INFO(rule.id);
    CHECK(!rule.source.empty());
    CHECK(!rule.sentence({1'000'000, 2, 1, true}).empty());
    for (const auto& form : rule.choose) CHECK(rule_book().forms.contains(form));
  }
  for (const auto& [name, form] : rule_book().forms) {
    INFO(name);
    auto strategy = find_strategy(form.strategy);
    REQUIRE(strategy);
    for (const auto& [option, value] : form.options.items()) CHECK(takes(*strategy->entry, option));
    if (!form.twin.empty()) CHECK(rule_book().form(form.twin).strategy == "zero");
  }
}

TEST_CASE("candidates without a predicted time are no what-ifs of the fastest plan, which needs a time", "[fastest]") {
  Topology topology = topology_of_words("cpu 2");
  Recipe recipe = load_whole_recipe((folder / "gpt-124m.toml").string(), {"selection.policy=fastest"});
  StepClock only_fp32;
  only_fp32.step_time = [](const Candidate& candidate) {
    bool known = candidate.job.precision.compute == DType::float32;
    return known ? std::optional(static_cast<double>(candidate.job.micro_batch_size)) : std::nullopt;
  };
  Plan plan = make_plan(recipe, topology, std::nullopt, only_fp32);
  std::vector<std::string> changes;
  for (const auto& answer : what_if(plan.request, only_fp32, true)) changes.push_back(answer.change);
  CHECK(changes == std::vector<std::string>{"train.global_batch_size = 256", "train.global_batch_size = 1024",
                                            "data.seq_len = 512"});
  CHECK_THROWS_AS(make_plan(recipe, topology, std::nullopt, StepClock{}), SpeedNotKnown);
}

TEST_CASE("under FULL_SHARD gradients stay sharded between micro-batches") {
  Topology topology = topology_of_words("h100-80g 8 x 4");
  auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"strategy=fsdp", "train.micro_batch_size=1", "precision=bf16-mixed"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    Recipe recipe = load_whole_recipe((folder / "llama-13b.toml").string(), overrides);
    return make_plan(recipe, topology, std::nullopt, clock_of(topology));
  };
  auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(1 << 30); };
  Plan each = plan({}), once = plan({"strategy.reduce_every_micro_batch=false"});
  CHECK(each.job.accumulation == 32);
  CHECK(gib(each.memory.total()) < 35);
  CHECK(gib(each.memory.total() - each.memory.activations) < 12);
  // The unsharded gradients in float32.
  CHECK(gib(once.memory.total()) - gib(each.memory.total()) > 45);
}

TEST_CASE("auto reduces gradients once per step if they fit unsharded and that is faster") {
  Topology topology = topology_of_words("h100-80g 8");
  auto choice = [&](double seconds_a_call) {
    StepClock clock;
    clock.error = [](const Job&, const StepTime&) { return 0.1; };
    clock.step_time = [seconds_a_call](const Candidate& candidate) -> std::optional<double> {
      double calls = 0;
      for (const auto& part : candidate.entry->traffic(candidate.job)) calls += static_cast<double>(part.calls);
      return 1 + seconds_a_call * calls;
    };
    Recipe recipe = load_whole_recipe((folder / "gpt-1558m.toml").string(), {"train.micro_batch_size=1"});
    return make_plan(recipe, topology, std::nullopt, clock).choice;
  };
  auto full_shard = [](const Choice& choice) {
    for (const auto& candidate : choice.candidates)
      if (candidate.form == "full_shard") return candidate;
    throw std::logic_error("no such form");
  };
  auto slow = full_shard(choice(1e-3)), free = full_shard(choice(0));
  REQUIRE(slow.job.accumulation > 1);
  CHECK(label(slow) == "fsdp FULL_SHARD, reduced once a step");
  CHECK(slow.tuned == nlohmann::json{{"reduce_every_micro_batch", false}});
  CHECK(label(free) == "fsdp FULL_SHARD");
  CHECK(free.bytes < slow.bytes);
}

TEST_CASE("what_if tries half and twice the batch") {
  Topology topology = topology_of_words("h100-80g 8 x 2");
  Recipe recipe =
      load_whole_recipe((folder / "llama-70b.toml").string(), {"train.global_batch_size=32", "precision=bf16-mixed"});
  auto clock = clock_of(topology);
  Plan plan = make_plan(recipe, topology, std::nullopt, clock);
  std::map<std::string, Choice> answers;
  for (auto& answer : what_if(plan.request, clock, true)) answers[answer.change] = answer.choice;
  REQUIRE(answers.contains("train.global_batch_size = 16"));
  REQUIRE(answers.contains("train.global_batch_size = 64"));
  CHECK(answers.at("train.global_batch_size = 16").plan().sequences() == 16);
  recipe.train.global_batch_size = 16;  // a smaller batch would leave some of the 16 ranks without a sequence
  Plan least = make_plan(recipe, topology, std::nullopt, clock);
  for (const auto& answer : what_if(least.request, clock, true)) CHECK(answer.change != "train.global_batch_size = 8");
}

TEST_CASE("policy fastest takes the lowest predicted time if it is 5 % lower than that of the documented choice",
          "[fastest]") {
  auto choose = [&](double gain) {
    StepClock clock;
    clock.error = [](const Job&, const StepTime&) { return 0.1; };
    clock.step_time = [gain](const Candidate& candidate) -> std::optional<double> {
      double a_sequence = candidate.entry->name == "fsdp" ? 1 / (1 + gain) : 1;
      return candidate.sequences() * a_sequence;
    };
    Recipe recipe = load_whole_recipe((folder / "gpt-124m.toml").string(), {"selection.policy=fastest"});
    return make_plan(recipe, topology_of_words("h100-80g 2"), std::nullopt, clock);
  };
  CHECK(choose(0.04).reason == "124.5 M parameters are under 500M and there are 2 devices");
  Plan within = choose(0.09), other = choose(0.25);
  const std::string faster = "policy \"fastest\": fsdp SHARD_GRAD_OP is predicted to be ",
                    than =
                        " % faster than ddp, which the documented rule chooses (124.5 M parameters are under 500M and "
                        "there are 2 devices)";
  CHECK(within.reason == faster + "9" + than + "; the error of a predicted time is 10 %");
  CHECK(other.reason == faster + "25" + than);
}

TEST_CASE("policy fastest recomputes blocks if the larger micro-batch makes that faster", "[fastest]") {
  const auto choose = [&](double seconds_per_micro_batch) {
    StepClock clock;
    clock.error = [](const Job&, const StepTime&) { return 0.1; };
    clock.step_time = [=](const Candidate& candidate) -> std::optional<double> {
      const double slower = candidate.every > 0 ? 4.0 / 3 : 1;
      return static_cast<double>(candidate.job.accumulation) * seconds_per_micro_batch +
             slower * static_cast<double>(candidate.sequences());
    };
    Recipe recipe = load_whole_recipe((folder / "llama-7b.toml").string(),
                                      {"selection.policy=fastest", "train.micro_batch_size=auto"});
    return make_plan(recipe, topology_of_words("h100-80g 8"), std::nullopt, clock);
  };
  Plan few = choose(1e6), many = choose(0);
  CHECK(few.recipe.activation_checkpointing.mode == "all");
  CHECK(few.recipe.origin("activation_checkpointing.mode").note == "predicted to be faster, with a larger micro-batch");
  CHECK(many.recipe.activation_checkpointing.mode == "none");
  CHECK(few.job.micro_batch_size > many.job.micro_batch_size);
}

TEST_CASE("with offload, a larger micro-batch is worth more recomputation than is needed to fit") {
  const auto topology = topology_of_words("h100-80g 1");
  const auto plan_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides{"train.global_batch_size=64", "model.vocab_size=128256"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const auto recipe = load_whole_recipe((folder / "llama-70b.toml").string(), overrides);
    return make_plan(recipe, topology, std::nullopt, clock_of(topology));
  };
  const Plan plan = plan_of({}), small = plan_of({"train.micro_batch_size=1"});
  CHECK(label(plan.choice.plan()) == "zero stage 3, all on CPU");
  CHECK(plan.job.micro_batch_size == 8);
  CHECK(plan.recipe.activation_checkpointing.mode == "all");
  CHECK(plan.choice.plan().every_needed == small.choice.plan().every);
  CHECK(*small.step_seconds > 4 * *plan.step_seconds);
}

TEST_CASE("the device kind is found from complete words of the driver's name") {
  CHECK(kind_of_device("NVIDIA A100-SXM4-80GB")->name == "a100-80g");
  CHECK(kind_of_device("NVIDIA A10")->name == "a10");
  CHECK(kind_of_device("NVIDIA L4")->name == "l4");
  CHECK(kind_of_device("NVIDIA L40S")->name == "l40s");
  CHECK(kind_of_device("NVIDIA H100 80GB HBM3")->name == "h100-80g");
  CHECK(kind_of_device("NVIDIA H200")->name == "h200");
  CHECK(kind_of_device("NVIDIA A100-PCIE-40GB")->name == "a100-40g-pcie");
  CHECK(kind_of_device("NVIDIA A100 80GB PCIe")->name == "a100-80g-pcie");
  CHECK(kind_of_device("NVIDIA H100 PCIe")->name == "h100-80g-pcie");
  CHECK(kind_of_device("NVIDIA GH200 480GB") == nullptr);
  CHECK(kind_of_device("NVIDIA GeForce RTX 5090") == nullptr);
  CHECK_FALSE(find_device_kind("v100")->supported());
  CHECK_FALSE(find_device_kind("t4")->bf16());
}

namespace {

/// GPT with 7.5 billion parameters on 64 devices, as in the ZeRO paper (Rajbhandari et al. 2020, arXiv 1910.02054,
/// figure 1).
MemoryParts zero_paper(const std::string& strategy, const nlohmann::json& options) {
  Recipe::Model recipe;
  recipe.name = "gpt";
  recipe.n_layers = 37;
  recipe.dim = 4096;
  recipe.n_heads = 32;
  recipe.max_seq_len = 1024;
  ModelSpec model = make_spec(recipe, 8192, 1024);
  Job job;
  job.model = &model;
  job.precision = precision_policy("bf16-mixed");
  job.accelerator = cuda_accelerator();
  job.recompute.assign(model.blocks.size(), true);  // so that the peak is at the end of backward, with all gradients
  job.mesh = data_mesh(64);
  job.local_size = 8;
  job.num_nodes = 8;
  const Entry& entry = *find_strategy(strategy)->entry;
  job.options = with_defaults(entry.options, options);
  REQUIRE(model.parameter_count() == Catch::Approx(7.5e9).epsilon(0.01));
  return entry.memory(job);
}

double state_gigabytes(const MemoryParts& parts) {
  return static_cast<double>(parts.parameters + parts.gradients + parts.optimizer) / 1e9;
}

}  // namespace

TEST_CASE("7.5B parameters on 64 devices need at most the memory that the ZeRO paper gives for each stage") {
  auto gigabytes = [](const std::string& strategy, const nlohmann::json& options) {
    return state_gigabytes(zero_paper(strategy, options));
  };
  // 120 GB: parameters, gradients and two moments in fp32, 16 bytes per parameter.
  CHECK(gigabytes("ddp", nlohmann::json::object()) == Catch::Approx(120).epsilon(0.01));
  CHECK(gigabytes("zero", {{"stage", 1}}) <= 31.4);
  CHECK(gigabytes("zero", {{"stage", 2}}) <= 16.6 * 1.01);
  CHECK(gigabytes("zero", {{"stage", 3}}) <= 1.9 * 1.01);
  // The table in strategies/README.md must have the same numbers.
  std::string readme = read_file(fs::path(RUNNER_SOURCE_DIR) / "strategies/README.md");
  auto row = [&](const std::string& what, const std::string& paper, double here) {
    std::string line = fmt::format("| {} | {} | {:.1f} |", what, paper, here);
    INFO(line);
    CHECK(readme.find(line) != std::string::npos);
  };
  row("every rank holds all (`ddp`)", "120", gigabytes("ddp", nlohmann::json::object()));
  row("stage 1", "31.4", gigabytes("zero", {{"stage", 1}}));
  row("stage 2", "16.6", gigabytes("zero", {{"stage", 2}}));
  row("stage 3", "1.9", gigabytes("zero", {{"stage", 3}}));
  row("`fsdp` FULL_SHARD", "1.9", gigabytes("fsdp", {{"sharding_strategy", "FULL_SHARD"}}));
}
