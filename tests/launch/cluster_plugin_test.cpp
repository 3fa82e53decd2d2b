// Cluster environments of users: what a library and a Lua file give becomes the placement, and wrong values and files are refused with
// the file, the field and what is allowed.
#include "runner/launch/cluster_plugin.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/error.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/launch/variables.hpp"
#include "tests/support/parts_library.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using nlohmann::json;

namespace {

using Values = std::map<std::string, std::string>;

Environment reads(Values variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

const Values second_of_two{{"RACK_NODE", "1"}, {"RACK_NODES", "2"}, {"RACK_HEAD", "10.0.0.1"}, {"RACK_JOB", "job 7"}};

/// Sets variables of this process, which a library reads, while it lives.
struct ProcessVariables {
  explicit ProcessVariables(const Values& given) : variables(given) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~ProcessVariables() {
    for (const auto& [name, value] : variables) ::unsetenv(name.c_str());
  }
  const Values variables;
};

Recipe recipe_with(const std::string& path, const json& options = json::object()) {
  Recipe recipe;
  recipe.plugins.cluster_environment = path;
  recipe.plugins.options = options;
  return recipe;
}

/// The library of the example, built once.
const std::string& rack_library() {
  static const TemporaryFolder folder;
  static const std::string library = build_parts(folder.path, "librack.so", parts_source("rack.cpp"));
  return library;
}

const std::string rack_script = RUNNER_SOURCE_DIR "/tests/plugin/parts/rack.lua";

/// The placement that a file with this text gives.
Placement placed_by(const std::string& lua, const Values& variables = {}, const json& options = json::object()) {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "mine.lua").string();
  std::ofstream(path) << lua;
  return find_placement(recipe_with(path, options), reads(variables));
}

Placement returned(const std::string& table) {
  return placed_by("return { ranks = function(env, options) return " + table + " end }");
}
std::string refused_result(const std::string& table) {
  return refusal([&] { returned(table); });
}

std::string refused_library(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  const auto path = build_parts(folder.path, "librack.so", with_replaced(parts_source("rack.cpp"), from, to));
  return refusal([&] { find_placement(recipe_with(path), process_environment()); });
}

}  // namespace

TEST_CASE("a library and a Lua file give the same placement") {
  const ProcessVariables set(second_of_two);
  for (const auto& path : {rack_library(), rack_script}) {
    INFO(path);
    Placement p = find_placement(recipe_with(path, {{"port", 4000}}), process_environment());
    CHECK(p.plugin);
    CHECK(p.cluster == (path == rack_script ? "the plug-in rack" : "the plug-in librack.so"));
    CHECK_FALSE(p.launched);
    CHECK(p.node_rank == 1);
    CHECK(p.num_nodes == 2);
    CHECK(p.master_addr == "10.0.0.1");
    CHECK(p.master_port == 4000);
    CHECK(p.job_id == "job 7");
    apply_node_options(p, {}, 4, 1);
    CHECK(p.local_size == 4);
    CHECK(p.rank == 4);
    CHECK(p.world_size == 8);
    check_placement(p, 4, 2);
    check_placement(p, 0, 0);
    CHECK(refusal([&] { check_placement(p, 4, 3); }) ==
          "2: the recipe uses 3 nodes, but " + p.cluster +
              " says that there are 2: set devices.num_nodes = 2, or start 3");
  }
}

TEST_CASE("without a port, the job's id decides it, and without both it is 29500") {
  const auto port = [](const Values& changes) {
    Values variables = second_of_two;
    for (const auto& [name, value] : changes) variables[name] = value;
    return find_placement(recipe_with(rack_script), reads(variables)).master_port;
  };
  CHECK(port({}) == derived_port("plugin/job 7"));
  CHECK(port({{"RACK_NODE", "0"}}) == port({}));
  CHECK(port({{"RACK_JOB", "job 8"}}) != port({}));
  CHECK(port({{"RACK_JOB", ""}}) == 29500);
  // One process has nobody to meet.
  CHECK(port({{"RACK_NODE", "0"}, {"RACK_NODES", "1"}}) == 0);
}

TEST_CASE("a launcher that starts one process for each rank sets `launched`") {
  const Placement p = returned(
      "{ node_rank = 1, num_nodes = 2, main_address = 'a', main_port = 7, launched = { rank = 5, world_size = 8, "
      "local_rank = 1, local_size = 4 } }");
  CHECK(p.launched);
  CHECK(p.rank == 5);
  CHECK(p.world_size == 8);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 4);
  CHECK(p.master_port == 7);
  check_placement(p, 4, 2);
  CHECK_THAT(refusal([&] { check_placement(p, 8, 2); }),
             ContainsSubstring("but the plug-in mine started 4 ranks on this node: set devices.devices = 4"));
  CHECK_THAT(explicit_indices_warning(p, {1, 3}), ContainsSubstring("under the plug-in mine"));
  // Ranks of one node meet on it.
  const Placement here = returned(
      "{ node_rank = 0, num_nodes = 1, launched = { rank = 1, world_size = 2, local_rank = 1, local_size = 2 } }");
  CHECK(here.master_addr == "127.0.0.1");
  CHECK(here.master_port == 29500);
}

TEST_CASE("values of a Lua file that are missing, of another type or unknown are refused with the field") {
  CHECK_THAT(refused_result("nil"), ContainsSubstring("mine.lua: ranks() must return a table such as { node_rank = 0, "
                                                      "num_nodes = 2, main_address = \"10.0.0.1\" }, not nil"));
  CHECK_THAT(refused_result("{ 0, 2 }"), EndsWith("mine.lua: ranks() must return a table with names, not a list"));
  CHECK_THAT(refused_result("{}"),
             EndsWith("mine.lua: ranks() must return `node_rank`, a whole number; it is missing or nil"));
  CHECK_THAT(
      refused_result("{ node_rank = '1', num_nodes = 2 }"),
      EndsWith("mine.lua: ranks() returned `node_rank` = \"1\", which must be a whole number; tonumber(...) makes "
               "one of a string"));
  CHECK_THAT(refused_result("{ node_rank = 0.5, num_nodes = 2 }"),
             EndsWith("ranks() returned `node_rank` = 0.5, which must be a whole number"));
  CHECK_THAT(refused_result("{ node_rank = 1 << 40, num_nodes = 2 }"),
             EndsWith("ranks() returned `node_rank` = 1099511627776, which must be a whole number"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, job_id = 7 }"),
             EndsWith("ranks() returned `job_id` = 7, which must be a string"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, main_adress = 'a' }"),
             EndsWith("ranks() returned an unknown field `main_adress`; did you mean `main_address`?"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, cores = 3 }"),
             EndsWith("ranks() returned an unknown field `cores`; allowed are node_rank, num_nodes, main_address, "
                      "main_port, launched, job_id"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, launched = true }"),
             EndsWith("ranks() returned `launched` = true, which must be a table"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, launched = { rank = 0, size = 1 } }"),
             EndsWith("ranks() must return `launched.world_size`, a whole number; it is missing or nil"));
  CHECK_THAT(refused_result("{ node_rank = 0, num_nodes = 1, main_address = print }"),
             ContainsSubstring("mine.lua: the result of ranks() at main_address: "));
}

TEST_CASE("values outside of their bounds are refused with the file, the field and the bounds") {
  const auto wrong = [](const std::string& fields) { return refused_result("{ " + fields + " }"); };
  CHECK_THAT(wrong("node_rank = 2, num_nodes = 2, main_address = 'a'"),
             ContainsSubstring("mine.lua: ranks() returned `node_rank` = 2, which must be from 0 to 1: num_nodes = 2"));
  CHECK_THAT(wrong("node_rank = -1, num_nodes = 1"),
             EndsWith("`node_rank` = -1, which must be from 0 to 0: num_nodes = 1"));
  CHECK_THAT(wrong("node_rank = 0, num_nodes = 0"), EndsWith("`num_nodes` = 0, which must be from 1 to 100000"));
  CHECK_THAT(wrong("node_rank = 0, num_nodes = 2"),
             EndsWith("`main_address` = \"\", which must be the host of rank 0: the processes of 2 nodes meet there"));
  CHECK_THAT(wrong("node_rank = 0, num_nodes = 2, main_address = 'a b'"),
             EndsWith("`main_address` = \"a b\", which must be a host name or an IP address without spaces"));
  CHECK_THAT(
      wrong("node_rank = 0, num_nodes = 2, main_address = 'a', main_port = 65536"),
      EndsWith("`main_port` = 65536, which must be from 1 to 65535: without it, job_id decides, or it is 29500"));
  CHECK_THAT(wrong("node_rank = 0, num_nodes = 2, main_address = 'a', main_port = -1"),
             ContainsSubstring("`main_port` = -1, which must be from 1 to 65535"));
  const auto launched = [&](const std::string& fields, const std::string& nodes = "node_rank = 1, num_nodes = 2") {
    return wrong(nodes + ", main_address = 'a', launched = { " + fields + " }");
  };
  CHECK_THAT(launched("rank = 8, world_size = 8, local_rank = 0, local_size = 4"),
             EndsWith("`launched.rank` = 8, which must be from 0 to 7: launched.world_size = 8"));
  CHECK_THAT(launched("rank = 0, world_size = 0, local_rank = 0, local_size = 4"),
             EndsWith("`launched.world_size` = 0, which must be at least 1"));
  CHECK_THAT(launched("rank = 4, world_size = 8, local_rank = 4, local_size = 4"),
             EndsWith("`launched.local_rank` = 4, which must be from 0 to 3: launched.local_size = 4"));
  CHECK_THAT(launched("rank = 4, world_size = 7, local_rank = 0, local_size = 4"),
             EndsWith("`launched.world_size` = 7, which must be 8: there are 2 nodes of 4 ranks each"));
  CHECK_THAT(launched("rank = 1, world_size = 8, local_rank = 0, local_size = 4"),
             EndsWith("`launched.rank` = 1, which must be 4: ranks are numbered node by node: node_rank * local_size + "
                      "local_rank"));
}

TEST_CASE("a plug-in that fails is named, a Lua file with its line") {
  Values variables = second_of_two;
  variables.erase("RACK_HEAD");
  CHECK_THAT(refusal([&] { find_placement(recipe_with(rack_script), reads(variables)); }),
             ContainsSubstring("rack.lua:12: RACK_HEAD is not set: is this process started by the scheduler?"));
  variables = second_of_two;
  variables["RACK_NODE"] = "one";
  CHECK_THAT(refusal([&] { find_placement(recipe_with(rack_script), reads(variables)); }),
             ContainsSubstring("rack.lua:15: RACK_NODE is not a number"));
  CHECK_THAT(refusal([&] { placed_by("return { ranks = function(env) return env(3) end }"); }),
             ContainsSubstring("mine.lua:1: env(name): `name` must be a string, not a number"));
  CHECK(refusal([&] { find_placement(recipe_with(rack_library()), process_environment()); }) ==
        "4: plugins.cluster_environment: the plug-in librack.so failed: RACK_NODE is not set: is this process started "
        "by the scheduler?");
  {
    const ProcessVariables set({{"RACK_NODE", "0"}, {"RACK_NODES", "2"}, {"RACK_HEAD", "a"}, {"RACK_JOB", "\xff"}});
    CHECK_THAT(refusal([&] { find_placement(recipe_with(rack_library()), process_environment()); }),
               EndsWith("`job_id` = \"\\xFF\", which must be UTF-8 text"));
  }
  const ProcessVariables set({{"RACK_NODE", "1"}, {"RACK_NODES", "1"}, {"RACK_HEAD", "a"}, {"RACK_JOB", ""}});
  CHECK(refusal([&] { find_placement(recipe_with(rack_library()), process_environment()); }) ==
        "2: " + rack_library() + ": ranks() returned `node_rank` = 1, which must be from 0 to 0: num_nodes = 1");
}

TEST_CASE("mistakes in the file are found without asking for the ranks") {
  const auto mistake = [](const std::string& path, const json& options = json::object()) {
    return refusal([&] {
      AskedOptions asked;
      open_cluster_plugin(recipe_with(path, options), reads({}), asked);
    });
  };
  const TemporaryFolder folder;
  const auto script = [&](const std::string& text) {
    const std::string path = (folder.path / "mine.lua").string();
    std::ofstream(path) << text;
    return mistake(path);
  };
  CHECK(mistake(rack_script) == "accepted");  // the variables of the job are not set
  CHECK(mistake(rack_library()) == "accepted");
  CHECK_THAT(script("return {}"), ContainsSubstring("mine.lua has no function `ranks`"));
  CHECK_THAT(script("return { rank = function() end, ranks = function() end }"),
             ContainsSubstring("mine.lua:1:1: error: `rank` is not part of a cluster environment") &&
                 ContainsSubstring("did you mean `ranks`?"));
  CHECK_THAT(script("return {\n  ranks = function("), ContainsSubstring("mine.lua:2:1: error: "));
  CHECK_THAT(mistake((folder.path / "mien.lua").string()),
             ContainsSubstring("mien.lua does not exist") && ContainsSubstring("mine.lua"));
  CHECK_THAT(mistake(rack_library() + ".0"), ContainsSubstring("plugins.cluster_environment: there is no file ") &&
                                                 ContainsSubstring("did you mean librack.so?"));
  CHECK_THAT(mistake(rack_script, {{"port", 0}}), ContainsSubstring("`port` must be at least 1, not 0"));
  CHECK_THAT(mistake(rack_library(), {{"port", "high"}}),
             ContainsSubstring("the plug-in librack.so failed: the option `port` must be an integer"));
  CHECK_THAT(mistake(rack_library(), {{"ports", {{"a", 1}}}}), ContainsSubstring("plugins.options: `ports` must be"));
}

TEST_CASE("a library of another version, without the part, or that is none is refused by name") {
  const std::string begin = "RUNNER_PARTS(.cluster_environment";
  CHECK_THAT(refused_library(begin, "RUNNER_PARTS(.version = 99, .cluster_environment"),
             ContainsSubstring("librack.so was built for version 99 of the interface of parts, and this program has "
                               "version 1; build it again"));
  CHECK_THAT(refused_library("return std::make_unique<Rack>(options);", "(void)options; return nullptr;"),
             ContainsSubstring("the plug-in librack.so made no cluster environment: its function returned null"));
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& source) {
    const auto path = build_parts(folder.path, "libother.so", source);
    return refusal([&] { find_placement(recipe_with(path), process_environment()); });
  };
  CHECK_THAT(refuse("#include <runner/plugins/parts.hpp>\nRUNNER_PARTS(.checkpoint_io = nullptr)\n"),
             ContainsSubstring("libother.so has no cluster environment; RUNNER_PARTS(.cluster_environment = ...) "
                               "defines it"));
  const std::string text = (folder.path / "librunner_text.so").string();
  std::ofstream(text) << "no library";
  CHECK_THAT(refusal([&] { find_placement(recipe_with(text), process_environment()); }),
             ContainsSubstring("plugins.cluster_environment: cannot load "));
}

TEST_CASE("options that no part of a recipe has are refused") {
  const auto check = [](const std::string& path, const json& options) {
    return refusal([&] {
      AskedOptions asked;
      asked.add({"bucket"});  // of another part
      open_cluster_plugin(recipe_with(path, options), reads({}), asked);
      asked.check(options, "plugins.options");
    });
  };
  for (const auto& path : {rack_library(), rack_script}) {
    INFO(path);
    CHECK(check(path, {{"prefix", "JOB_"}, {"port", 5}, {"bucket", "b"}}) == "accepted");
    CHECK(check(path, {{"prefx", "JOB_"}}) ==
          "2: plugins.options: no plug-in of this recipe has an option `prefx`; did you mean `prefix`?");
    CHECK(check(path, {{"colour", 1}}) ==
          "2: plugins.options: no plug-in of this recipe has an option `colour`; they have bucket, port, prefix");
  }
  CHECK(refusal([] {
          AskedOptions().check({{"port", 1}}, "plugins.options");
        }) == "2: plugins.options: no plug-in of this recipe has an option `port`; they have none");
}

TEST_CASE("options of the command line and elastic runs are refused with a plug-in") {
  Placement p = find_placement(recipe_with(rack_script), reads(second_of_two));
  NodeOptions options;
  options.master_port = 3;
  CHECK_THAT(refusal([&] { apply_node_options(p, options, 1, 1); }),
             ContainsSubstring("--master-port with plugins.cluster_environment"));
  options.node_rank = 1;
  CHECK(refusal([&] { apply_node_options(p, options, 1, 2); }) ==
        "2: --node-rank with plugins.cluster_environment: the plug-in rack already says which node this is; leave it "
        "out, or remove the key");
  options.master_addr = "10.0.0.1";
  CHECK_THAT(refusal([&] { apply_elastic_options(p, options, 1, 2); }),
             ContainsSubstring("the plug-in rack says how many nodes there are"));
}

TEST_CASE("without a plug-in devices.cluster decides") {
  Recipe recipe;
  CHECK(find_placement(recipe, reads({})).cluster == "local");
  recipe.devices.cluster = "slrum";
  CHECK_THAT(refusal([&] { find_placement(recipe, reads({})); }), ContainsSubstring("did you mean \"slurm\"?"));
}
