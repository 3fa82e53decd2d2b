// The code that a recipe names: a node refuses the folder of a run that names other code.
#include "runner/commands/run_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/config.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const std::string model = "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 32\nn_heads = 2\nmax_seq_len = 16\n",
                  data = "[data]\nformat = \"text\"\ntrain = [\"a.txt\"]\n", train = "[train]\nmax_steps = 2\n";

struct Folder {
  TemporaryFolder folder;
  Folder() {
    for (const char* name : {"a.txt", "a.lua", "b.lua", "a.so", "b.so"}) write_file_atomic(folder.path / name, "");
    fs::create_directories(folder.path / "run");
  }
  Recipe recipe(const std::string& text) const {
    write_file_atomic(folder.path / "recipe.toml", text);
    return load_recipe((folder.path / "recipe.toml").string());
  }
  /// What a node with the recipe `own` says of a run's folder that names what `other` names.
  std::string said(const std::string& own, const std::string& other) const {
    write_file_atomic(folder.path / "run" / "resolved.toml", print_recipe(recipe(other)));
    const Recipe here = recipe(own);
    return refusal([&] { refuse_other_code(here, folder.path / "run"); });
  }
};

}  // namespace

TEST_CASE("a run's folder that names other code than the node's recipe is refused, with the key") {
  const Folder folder;
  const std::string base = model + data + train;
  struct Row {
    std::string own, other, key;
  };
  const std::string plugin_data = "[data]\nformat = \"plugin\"\ntrain = [\"a.txt\"]\nplugin = ";
  const std::vector<Row> table{
      {base, base + "[hooks]\nfiles = [\"a.lua\"]\n", "hooks.files"},
      {base + "[hooks]\nfiles = [\"a.lua\"]\n", base + "[hooks]\nfiles = [\"a.lua\", \"b.lua\"]\n", "hooks.files"},
      {base + "[hooks]\nfiles = [\"a.lua\"]\n", base + "[hooks]\nfiles = [\"a.lua\"]\ntrusted = true\n",
       "hooks.trusted"},
      {base + "[hooks]\nfiles = [\"a.lua\"]\na.command = \"x\"\n",
       base + "[hooks]\nfiles = [\"a.lua\"]\na.command = \"y\"\n", "hooks.a"},
      {base, base + "[plugins]\nprecision = \"a.so\"\n", "plugins.precision"},
      {base + "[plugins]\naccelerator = \"a.so\"\n", base + "[plugins]\naccelerator = \"b.so\"\n",
       "plugins.accelerator"},
      {base, base + "[plugins]\ncheckpoint_io = \"a.so\"\n", "plugins.checkpoint_io"},
      {base, base + "[plugins]\ncluster_environment = \"a.so\"\n", "plugins.cluster_environment"},
      {base, "[model]\nname = \"plugin\"\nplugin = \"a.so\"\nmax_seq_len = 16\n" + data + train, "model.plugin"},
      {model + plugin_data + "\"a.so\"\n" + train, model + plugin_data + "\"b.so\"\n" + train, "data.plugin"},
      {base, model + data + "order = \"a.lua\"\n" + train, "data.order"},
      {base, base + "[strategy]\nname = \"lua:a.lua\"\n", "strategy.name"},
      {base, base + "[strategy]\nname = \"x\"\nregistry = \"a.lua\"\n", "strategy.registry"},
      {base, base + "[strategy]\nname = \"xla\"\nplugin = \"./a.so\"\n", "strategy.plugin"},
      {base, base + "[strategy]\nname = \"xla\"\ncompilation_cache = \"cache\"\n", "strategy.compilation_cache"},
      {base, base + "[strategy]\nname = \"ddp\"\nddp_comm_hook = \"lua:a.lua\"\n", "strategy.ddp_comm_hook"}};
  for (const Row& row : table) {
    INFO(row.other);
    CHECK_THAT(folder.said(row.own, row.other),
               StartsWith("2: the run's folder ") &&
                   ContainsSubstring(" names other code than the recipe of this node: " + row.key + " is ") &&
                   ContainsSubstring("(RUNNER_NODES_SECRET)"));
    CHECK(folder.said(row.other, row.other) == "accepted");
  }
}

TEST_CASE("what a plan decides, and secret values, are no other code") {
  const Folder folder;
  const std::string base = model + data + train;
  CHECK(folder.said(base + "[strategy]\nname = \"auto\"\n",
                    base + "[strategy]\nname = \"ddp\"\n[devices]\ncpu_processes = 2\n") == "accepted");
  CHECK(folder.said(base + "[hooks]\nfiles = [\"a.lua\"]\na.api_key = \"mine-1234567\"\n",
                    base + "[hooks]\nfiles = [\"a.lua\"]\na.api_key = \"yours-1234567\"\n") == "accepted");
  CHECK(folder.said(base + "[hooks]\nfiles = [\"a.lua\"]\n", base) == "accepted");  // less code
}
