// Examples from the documentation of PyTorch Lightning and Fabric as recipes: tests/cases/seeds. Those that name
// hardware have a line "> RECIPE on DEVICES [x NODES]" in plans.txt, followed by their plan (RUNNER_UPDATE_CASES=1
// rewrites the plans). expected_failures.txt lists those that are not supported yet, and their errors. All others train
// on CPU, or with plug-ins of tests/plugin/parts.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/place.hpp"
#include "runner/config/device_request.hpp"
#include "runner/devices/devices.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/strategy_options.hpp"
#include "tests/plugin/torch_parts_support.hpp"
#include "tests/support/command.hpp"

using namespace runner;

namespace {

const fs::path folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/seeds";

std::set<std::string> all_examples() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".toml" && entry.path().stem() != "base") names.insert(entry.path().stem());
  return names;
}

/// Maps an example to its first error.
std::map<std::string, std::string> expected_failures() {
  const std::string indent = "  ";
  std::map<std::string, std::string> list;
  for (const auto& line : split(read_file(folder / "expected_failures.txt"), '\n'))
    if (auto colon = line.find(": "); line.starts_with(indent) && colon != std::string::npos)
      list[line.substr(indent.size(), colon - indent.size())] = line.substr(colon + 2);
  return list;
}

/// The message of the first error in an example; empty: it has none.
std::string first_error(const std::string& example) {
  try {
    load_whole_recipe((folder / (example + ".toml")).string(), {});
  } catch (const RecipeError& error) {
    return error.diagnostics().front().message;
  }
  return "";
}

struct PlanCase {
  std::string example, hardware, answer;
};

std::vector<PlanCase> plan_cases() {
  std::vector<PlanCase> cases;
  std::istringstream in(read_file(folder / "plans.txt"));
  for (std::string line; std::getline(in, line);) {
    if (auto on = line.find(" on "); line.starts_with("> "))
      cases.push_back({line.substr(2, on - 2), line.substr(on + 4), ""});
    else if (!line.empty())
      cases.back().answer += line + "\n";
  }
  return cases;
}

/// A node with the given number of free devices of one kind.
Facts node_of(const std::string& hardware) {
  std::istringstream in(hardware);
  std::string name;
  int devices = 0;
  in >> name >> devices;
  const DeviceKind& kind = *find_device_kind(name);
  Facts facts;
  facts.cuda_module = true;
  facts.cores = 64;
  facts.memory_bytes = int64_t{1} << 40;
  for (int i = 0; i < devices; ++i)
    facts.devices.push_back(
        {i, kind.matches.front(), kind.memory_bytes, kind.memory_bytes, kind.major, kind.minor, /*processes=*/0});
  return facts;
}

/// The plan of the recipe on these devices, without values that depend on the size of its model.
std::string plan_text(const PlanCase& one) {
  Recipe recipe = load_whole_recipe((folder / (one.example + ".toml")).string(), {});
  Plan plan = make_plan(recipe, topology_here(recipe, node_of(one.hardware)), 256);
  std::vector<Diagnostic> diagnostics;
  auto given = resolve_strategy(recipe, diagnostics).options;
  given.erase("timeout");
  given.erase("process_group_backend");
  const auto& resolved = plan.recipe;
  std::string text =
      fmt::format("{} on {}, {} devices = {}, {}\n", plan.entry->name, counted(plan.job.num_nodes, "node"),
                  resolved.devices.accelerator, write_devices(resolved.devices.devices), resolved.precision.mode);
  for (const auto& [name, value] : given.items()) text += fmt::format("{} = {}\n", name, value.dump());
  if (resolved.activation_checkpointing.mode != "none")
    text += "activation_checkpointing = " + resolved.activation_checkpointing.mode + "\n";
  if (resolved.devices.cluster != "auto") text += "cluster = " + resolved.devices.cluster + "\n";
  if (auto backend = resolved.devices.process_group_backend) text += "backend = " + *backend + "\n";
  for (const auto& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

/// Whether an example has an accelerator and a precision of its own.
bool has_plugins(const std::string& example) {
  return read_file(folder / (example + ".toml")).find("\nplugins = ") != std::string::npos;
}

/// The libraries that take the place of those in such an example, built once.
const std::vector<std::string>& plugin_settings() {
  const auto built = [](const TemporaryFolder& place, const char* source) {
    testing::build_torch_parts(place.path, read_file(fs::path(RUNNER_SOURCE_DIR) / "tests/plugin/parts" / source));
    return (place.path / "libparts.so").string();
  };
  static const TemporaryFolder devices, precision;
  static const std::vector<std::string> settings = {"plugins.accelerator=" + built(devices, "host_device.cpp"),
                                                    "plugins.precision=" + built(precision, "fake_quant.cpp")};
  return settings;
}

/// The result of `runner run` on CPU, or on the devices of a plug-in.
testing::CommandResult train(const testing::Workplace& place, const std::string& example) {
  std::vector<std::string> arguments = {"run", (folder / (example + ".toml")).string(), "--json", "--set"};
  const auto settings = has_plugins(example) ? plugin_settings() : std::vector<std::string>{"devices.accelerator=cpu"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  return place.run(arguments);
}

}  // namespace

TEST_CASE("examples that name hardware give their expected plans", "[seeds]") {
  std::string written;
  auto cases = plan_cases();
  REQUIRE(cases.size() >= 40);
  for (const auto& one : cases) {
    INFO(one.example);
    std::string now = plan_text(one);
    if (std::getenv("RUNNER_UPDATE_CASES"))
      written += fmt::format("> {} on {}\n{}\n", one.example, one.hardware, now);
    else
      CHECK(now == one.answer);
  }
  if (!written.empty()) std::ofstream(folder / "plans.txt") << written;
}

TEST_CASE("examples that name no hardware train on CPU", "[seeds][e2e]") {
  auto examples = all_examples();
  for (const auto& one : plan_cases()) examples.erase(one.example);
  for (const auto& [example, message] : expected_failures()) examples.erase(example);
  REQUIRE(examples.size() >= 20);
  for (const auto& example : examples) {
    INFO(example);
    testing::Workplace place;
    auto result = train(place, example);
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.json().at("status") == "finished");
    CHECK(result.json().at("steps") == 2);
    if (has_plugins(example)) CHECK(place.run({"show", "--json"}).json().at("host").at("accelerator") == "hostdev");
    if (example == "distributed-training-444")
      CHECK(fs::exists(fs::path(result.json().at("run_dir").get<std::string>()) / "artifacts/summary.txt"));
  }
}

TEST_CASE("examples that need missing features are refused, and their list only becomes shorter", "[seeds]") {
  auto examples = all_examples();
  auto list = expected_failures();
  CHECK(list.size() <= 5);
  for (const auto& [example, message] : list) {
    INFO(example << ": if it works now, remove it from expected_failures.txt and lower the bound above");
    CHECK(examples.contains(example));
    CHECK(first_error(example) == message);
  }
}

TEST_CASE("`runner strategies NAME` prints the differences of an alias, and options without effect", "[seeds][e2e]") {
  testing::Workplace place;
  place.write("no_gpu.json", R"({"cuda_problem": "none", "cores": 2})");
  place.write("gpu.json", R"({"cuda": [{"name": "NVIDIA H200", "memory_bytes": 1, "major": 9}], "cuda_module": true})");
  auto shown = [&](const std::string& name, const std::string& facts) {
    auto result = place.run({"strategies", name}, {{"RUNNER_FAKE_FACTS", (place.path() / facts).string()}});
    REQUIRE(result.code == 0);
    return result.out;
  };
  auto sharded = shown("ddp_sharded", "no_gpu.json");
  CHECK(sharded.starts_with(
      "ddp_sharded = { stage = 2 }: an alias of zero\n    (FairScale's OSS with ShardedDataParallel is"));
  CHECK(sharded.find(")\nzero: ") != std::string::npos);
  CHECK(shown("fsdp", "no_gpu.json").find("only with devices that have streams (CUDA); this machine has none\n") !=
        std::string::npos);
  CHECK(shown("fsdp", "gpu.json").find("only with devices that have streams (CUDA)\n") != std::string::npos);
  CHECK(shown("deepspeed", "gpu.json").find("  config\n      DeepSpeed's configuration: ") != std::string::npos);
  auto wrong = place.run({"strategies", "IPUStrateg"});  // strategies that need other devices are not suggested
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("IPU") == wrong.err.rfind("IPU"));
}
