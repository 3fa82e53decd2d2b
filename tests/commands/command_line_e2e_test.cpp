// The command line: verbs and misspelt words, help, overrides, completion, and finding the ledger.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "runner/base/text.hpp"
#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

/// Runs a line of bash in the workplace, with the built `runner` in PATH and without RUNNER_HOME.
CommandResult shell(const Workplace& place, const std::string& line) {
  place.write("line.sh", "unset RUNNER_HOME\nexport NO_COLOR=1 LC_ALL=C\nPATH=" RUNNER_BINARY_DIR "/bin:$PATH\ncd '" +
                             place.path().string() + "'\n" + line + "\n");
  auto name = [&](const char* end) { return (place.path() / "line").string() + end; };
  int status = std::system(("bash '" + name(".sh") + "' >'" + name(".out") + "' 2>'" + name(".err") + "'").c_str());
  return {WEXITSTATUS(status), slurp(name(".out")), slurp(name(".err"))};
}

std::string complete(const Workplace& place, std::vector<std::string> words) {
  words.insert(words.begin(), "__complete");
  return place.run(words).out;
}

}  // namespace

TEST_CASE("an unknown verb or option is refused with the nearest one", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  struct Row {
    std::vector<std::string> words;
    const char* error;
  };
  const std::vector<Row> rows = {
      {{"lss"}, "error: runner has no verb `lss`: did you mean `ls`?; `runner --help` lists all\n"},
      {{"train", "tiny.toml"}, "error: runner has no verb `train`: did you mean `run`?; `runner --help` lists all\n"},
      {{"download"}, "error: runner has no verb `download`; `runner --help` lists all\n"},
      {{"sweep", "stats"},
       "error: runner sweep has no verb `stats`: did you mean `status`?; `runner sweep --help` lists all\n"},
      {{"ls", "--sord", "steps"},
       "error: runner ls does not take `--sord`: did you mean `--sort`?; `runner ls --help` lists its arguments\n"},
      {{"run", "tiny.toml", "train.max_steps=3"},
       "error: runner run does not take `train.max_steps=3`: did you mean `--set train.max_steps=3`?; `runner run "
       "--help` lists its arguments\n"},
      {{"run"}, "error: no recipe is given: `runner run RECIPE`; `runner run --help` lists its arguments\n"},
      {{"rm", "-y"},
       "error: runner rm does not take `-y`; no run is given: `runner rm RUN ... | FILTER`; `runner rm --help` lists "
       "its arguments\n"},
      {{"recommend", "tiny.toml", "--devices", "8xH100"},
       "error: --devices: must be a number, not `8xH100`; did you mean `--device-kind h100-80g:8` or `--device-kind "
       "h100-80g-pcie:8`?; `runner recommend --help` lists its arguments\n"},
      {{"recommend", "tiny.toml", "--num-nodes", "two"},
       "error: --num-nodes must be a number, not `two`; `runner recommend --help` lists its arguments\n"},
      {{"data", "tiny.toml", "--samples=-0x2"},
       "error: --samples: must be at least 1, not -0x2; `runner data --help` lists its arguments\n"},
      {{"data", "tiny.toml", "--first", "-1"},
       "error: --first: must be at least 0, not -1; `runner data --help` lists its arguments\n"},
      {{"help", "recpie"},
       "error: there is no help on `recpie`: did you mean `recipe`?; `runner --help` lists the verbs, `runner help "
       "recipe` the keys\n"},
  };
  for (const auto& row : rows) {
    auto result = place.run(row.words);
    INFO(row.words[0]);
    CHECK(result.code == 2);
    CHECK(result.out == "");
    CHECK(result.err == row.error);
  }
}

TEST_CASE("help VERB is VERB --help, and runner alone prints a short help", "[e2e]") {
  Workplace place;
  for (const auto& verb : {std::vector<std::string>{"run"}, {"ls"}, {"lua"}, {"sweep"}, {"sweep", "best"}}) {
    auto asked = verb, option = verb;
    asked.insert(asked.begin(), "help");
    option.push_back("--help");
    auto help = place.run(asked);
    INFO(verb[0]);
    CHECK(help.code == 0);
    CHECK_THAT(help.out, ContainsSubstring("Usage: runner " + verb[0]));
    CHECK(help.out == place.run(option).out);
  }
  auto alone = place.run({});
  CHECK(alone.code == 0);
  CHECK_THAT(alone.out, ContainsSubstring("runner run RECIPE.toml"));
  CHECK(std::count(alone.out.begin(), alone.out.end(), '\n') < 15);
  CHECK(place.run({"help"}).out == alone.out);
  CHECK(place.run({"help", "recipe", "train.max_steps"}).out == place.run({"help", "train.max_steps"}).out);
}

TEST_CASE("--help begins with the verbs of every day, and its lines are not wider than 100 characters", "[e2e]") {
  Workplace place;
  const auto help = place.run({"--help"}).out;
  const auto first = help.substr(help.find("Every day:\n"));
  size_t at = 0;
  for (const char* verb :
       {"run", "resume", "check", "ls", "show", "compare", "generate", "chat", "evaluate", "export", "init"}) {
    INFO(verb);
    const auto found = first.find(std::string("\n  ") + verb + " ", at);
    REQUIRE(found != std::string::npos);
    at = found;
  }
  const auto generate = place.run({"generate", "--help"}).out;
  for (const auto& line : runner::split(generate, '\n')) CHECK(line.size() <= 101);
  CHECK_THAT(generate, ContainsSubstring("otherwise 256") && ContainsSubstring("{auto,cpu,cuda}=auto"));
  CHECK_THAT(place.run({"chat", "--help"}).out, ContainsSubstring("otherwise 1024"));
}

TEST_CASE("help knows names of other tools, options of strategies, and auto", "[e2e]") {
  Workplace place;
  CHECK_THAT(place.run({"help", "recipe", "lr"}).out, StartsWith("`lr` is optimizer.lr here\n[optimizer]"));
  CHECK_THAT(place.run({"help", "batch_size"}).out, StartsWith("`batch_size` is train.micro_batch_size here\n"));
  CHECK_THAT(place.run({"help", "recipe", "strategy.stage"}).out,
             StartsWith("strategy.stage, an option of a strategy\n  of zero: "));
  CHECK_THAT(place.run({"help", "model.tie_embeddings"}).out, !ContainsSubstring("; default true"));
  CHECK_THAT(place.run({"help", "recipe", "sweep"}).out,
             ContainsSubstring("one recipe.\n  [sweep] makes this a sweep file"));
  CHECK_THAT(place.run({"strategies", "auto"}).out, StartsWith("auto: Chooses one of the strategies"));
  CHECK_THAT(place.run({"help", "recipe", "early"}).out, StartsWith("keys about `early`:\n  train.early_stopping\n"));
  CHECK_THAT(place.run({"help", "recipe", "fsdp"}).out,
             StartsWith("`fsdp` is a strategy: `runner strategies fsdp` describes it\n"));
  CHECK(place.run({"lua", "check", "nofile.lua"}).err == "error: there is no file nofile.lua\n");
}

TEST_CASE("on a terminal the help of recipes uses the pager", "[e2e]") {
  Workplace place;
  auto paged = [&](const std::string& pager) {
    return shell(place, "PAGER=\"" + pager + "\" script -qec 'runner help recipe train' /dev/null </dev/null").out;
  };
  CHECK_THAT(paged("sed s/^/paged:/"), StartsWith("paged:[train]"));
  CHECK_THAT(paged("no-such-pager"), StartsWith("[train]"));
  CHECK_THAT(paged(""), StartsWith("[train]"));
}

TEST_CASE("several values after --set, and --unset, are applied together", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto config = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "print");
    words.push_back("--json");
    auto result = place.run(words);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return nlohmann::json::parse(result.out);
  };
  for (const auto& words : {std::vector<std::string>{"tiny.toml", "--set", "train.max_steps=3", "optimizer.lr=0.5"},
                            {"--set", "train.max_steps=3", "optimizer.lr=0.5", "tiny.toml"},
                            {"--set=train.max_steps=3", "optimizer.lr=0.5", "tiny.toml"}}) {
    auto printed = config(words);
    CHECK(printed["config"]["train"]["max_steps"] == 3);
    CHECK(printed["config"]["optimizer"]["lr"] == 0.5);
    CHECK(printed["origins"]["optimizer.lr"] == "--set optimizer.lr=0.5");
  }
  auto files = config({"tiny.toml", "--unset", "data.validation_fraction", "--set", "data.validation=[\"text.txt\"]"});
  CHECK_FALSE(files["config"]["data"].contains("validation_fraction"));
  CHECK(config({"tiny.toml", "--set", "strategy.stage=2", "strategy=zero", "--unset",
                "strategy"})["config"]["strategy"] == nlohmann::json{{"name", "zero"}, {"stage", 2}});
  CHECK(place.run({"print", "tiny.toml", "--set", "run.seed=5", "--unset", "run.seed"}).err ==
        "--unset run.seed: error: `run.seed` is both set and unset\n--set run.seed=5: note: it is set here\n");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"--unset", "data.validation_fraction", "strategy", "tiny.toml", "--set", "data.validation=[\"text.txt\"]"},
           {"tiny.toml", "--unset=strategy", "data.validation_fraction", "--set", "data.validation=[\"text.txt\"]"}}) {
    const auto removed = config(words)["config"];
    CHECK_FALSE(removed["data"].contains("validation_fraction"));
    CHECK(removed["strategy"]["name"] == "auto");
  }
  CHECK_THAT(place.run({"print", "tiny.toml", "--unset", "run.seed", "run.nope"}).err,
             StartsWith("--unset run.nope: error: recipes have no section or key `run.nope`\n"));
  CHECK(place.run({"print", "tiny.toml", "--unset", "nope"}).err ==
        "--unset nope: error: recipes have no section or key `nope`\n");
  CHECK(place.run({"print", "tiny.toml", "--set"}).err ==
        "error: --set needs KEY=VALUE; `runner print --help` lists its arguments\n");
  CHECK_THAT(place.run({"sweep", "run", "s.toml", "--set", "run.seed=5"}).err, ContainsSubstring("[sweep.set]"));
}

TEST_CASE("completion proposes verbs, options, keys, values, strategies and runs", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  CHECK(complete(place, {"re"}) ==
        "resume\tContinue a run from its newest checkpoint\n"
        "recommend\tSay which strategy fits a recipe best, here or on other devices, and why\n"
        "rerun\tTrain a run again from what the ledger recorded\n"
        "rename\tGive a run another name\n"
        "restore\tBring runs back from the trash\n");
  CHECK_THAT(complete(place, {"sweep", "st"}), StartsWith("status\t") && ContainsSubstring("\nstop\t"));
  CHECK_THAT(complete(place, {"ls", "--st"}), StartsWith("--status\t"));
  CHECK_THAT(complete(place, {"ls", "--sort", "st"}),
             StartsWith("status\t") && ContainsSubstring("\nstarted\t") && ContainsSubstring("\nsteps\t"));
  CHECK_THAT(complete(place, {"run", "tiny.toml", "--set", "model.n_h"}), StartsWith("model.n_heads=\t"));
  CHECK(complete(place, {"run", "tiny.toml", "--set", "optimizer.name=ad"}) ==
        "optimizer.name=adamw\noptimizer.name=adam\noptimizer.name=adamw_8bit\noptimizer.name=adafactor\n");
  CHECK(complete(place, {"run", "--set", "model.dim=8", "optimizer.name=s"}) ==
        "optimizer.name=sgd\noptimizer.name=schedule_free_adamw\n");
  CHECK_THAT(complete(place, {"run", "tiny.toml", "--set", "strategy.name=fs"}), StartsWith("strategy.name=fsdp\n"));
  CHECK_THAT(complete(place, {"run", "tiny.toml", "--set", "strategy=fs"}), StartsWith("strategy=fsdp\n"));
  CHECK_THAT(complete(place, {"run", "tiny.toml", "--set", "strate"}), StartsWith("strategy=\t"));
  CHECK(complete(place, {"run", "tiny.toml", "--set", "strategy=au"}) == "strategy=auto\n");
  CHECK_THAT(complete(place, {"check", "x.toml", "--unset", "lr_s"}), StartsWith("lr_scheduler\t"));
  CHECK_THAT(complete(place, {"strategies", "dd"}), StartsWith("ddp\n"));
  CHECK_THAT(complete(place, {"help", "met"}), StartsWith("metrics\t"));
  CHECK(complete(place, {"completion", ""}) == "bash\nzsh\nfish\n");
  CHECK(complete(place, {"run", "ti"}) == "");  // files are completed by the shell
  CHECK(complete(place, {"resume", "la"}) == "last\tthe newest run\n");
  CHECK(complete(place, {"show", "la"}) == "last\tthe newest run\nlast(\tof a metric\n");
  place.replace_worker("exit 1");
  place.run({"run", "tiny.toml", "--set", "devices=1"});
  const auto run = place.run({"ls", "--json"}).json().at("runs").at(0);
  const auto text = [&](const char* field) { return run.at(field).get<std::string>(); };
  CHECK(complete(place, {"resume", "20"}) == text("id") + "\t" + text("name") + ", failed\n");
}

TEST_CASE("the script for bash works in bash", "[e2e]") {
  Workplace place;
  auto completed = [&](const std::string& line) {
    return shell(place, "source <(runner completion bash)\nCOMP_LINE='" + line +
                            "' COMP_POINT=" + std::to_string(line.size()) +
                            "\ncompopt() { :; }\n_runner\nprintf '%s\\n' \"${COMPREPLY[@]}\"")
        .out;
  };
  CHECK(completed("runner metr") == "metrics\n");
  CHECK(completed("runner export --dtype ") == "f32\nbf16\nf16\n");
  CHECK(completed("runner run --set model.n_he") == "model.n_heads=\n");
  CHECK(completed("runner run --set optimizer.name=sg") == "sgd\n");  // bash replaces only the text after "="
  CHECK(completed("runner check ") == "\n");                          // bash then completes files
}

TEST_CASE("the ledger is found in parent folders, like git's repository", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string home = fs::canonical(place.path()).string() + "/.runner";
  auto missing = shell(place, "mkdir -p deep/down && cd deep/down && runner show x");
  CHECK(missing.code == 2);
  CHECK(missing.err == "error: there is no run \"x\": there is no ledger " + fs::canonical(place.path()).string() +
                           "/deep/down/.runner/ledger.db; RUNNER_HOME=FOLDER names another ledger\n");

  CHECK_THAT(shell(place, "mkdir -p empty/.runner empty/below && cd empty/below && runner ls").err,
             StartsWith("ledger: " + fs::canonical(place.path()).string() + "/empty/.runner ("));

  auto first = shell(place, "runner run tiny.toml --set devices=1 train.max_steps=1");
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK_THAT(first.err, !ContainsSubstring("ledger"));
  const std::string note = "ledger: " + home + " (mkdir .runner makes one here; RUNNER_HOME names any other)\n";
  auto listed = shell(place, "cd deep/down && runner ls");
  CHECK(listed.err == note);
  CHECK_THAT(listed.out, ContainsSubstring("finished"));

  auto below =
      shell(place, "cd deep/down && runner run ../../tiny.toml --set devices=1 train.max_steps=1 run.name=below");
  CHECK_THAT(below.err, StartsWith(note));
  CHECK_THAT(shell(place, "runner ls").out, ContainsSubstring("below"));
  CHECK_FALSE(fs::exists(place.path() / "deep/down/.runner"));

  auto unknown = shell(place, "cd deep && runner show belw");
  CHECK_THAT(unknown.err, EndsWith("error: there is no run \"belw\" in " + home +
                                   "/ledger.db: did you mean \"below\"?; `runner ls` lists all, RUNNER_HOME=FOLDER "
                                   "names another ledger\n"));
  CHECK_THAT(shell(place, "cd deep && RUNNER_HOME=other runner ls").err, StartsWith("no runs in other yet"));
  CHECK_THAT(shell(place, "cd deep && mkdir .runner && runner ls").err, StartsWith("no runs in .runner yet"));
  CHECK_THAT(shell(place, "rmdir deep/.runner; chmod o+w . && cd deep && runner ls").err,
             StartsWith("no runs in .runner yet"));  // any user could have created it there
}

TEST_CASE("strategies gives the reason for each missing strategy, and each difference once", "[e2e]") {
  Workplace place;
  auto count = [](const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  auto list = place.run({"strategies"}).out;
  CHECK(count(list, "  no  ") > 0);
  CHECK(count(list, "  no  ") == count(list, "Not built yet; ") + count(list, "which LibTorch does not contain"));
  auto ddp = place.run({"strategies", "ddp"}).out;
  CHECK(count(ddp, "differ only in how Python starts its processes") == 1);
  CHECK_THAT(ddp, ContainsSubstring("\n  alias ddp_spawn\n"));
}
