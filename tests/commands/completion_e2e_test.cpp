// Completion in the shells themselves: run ids and names, tags, filters, metrics, recipe keys and strategies.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

bool there_is(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
}

/// A ledger with one run, "tiny", with the tag "night".
struct OneRun {
  Workplace place;
  std::string id;
  OneRun() {
    write_tiny_recipe(place);
    place.replace_worker(
        "if [ $RANK = 0 ]; then emit '{\"event\":\"metrics\",\"rank\":0,\"step\":1,\"values\":{\"mine\":2}}'; fi");
    place.run({"run", "tiny.toml", "--set", "run.name=tiny", "run.tags=[\"night\"]"});
    id = place.run({"ls", "--json"}).json().at("runs").at(0).at("id");
  }
  /// What a shell prints.
  std::string shell(const std::string& program, const std::string& script) const {
    place.write("script", script);
    const std::string folder = place.path().string();
    const std::string command = "cd '" + folder + "' && RUNNER_HOME='" + place.home().string() + "' LC_ALL=C HOME='" +
                                folder + "' PATH='" RUNNER_BINARY_DIR "/bin':\"$PATH\" " + program +
                                " script >shell.out 2>shell.err";
    std::system(command.c_str());
    return slurp(place.path() / "shell.out") + slurp(place.path() / "shell.err");
  }
};

}  // namespace

TEST_CASE("expectation 39: completion proposes run ids and names, tags, filters, metrics, keys and strategies",
          "[e2e]") {
  const OneRun run;
  const auto complete = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "__complete");
    return run.place.run(words).out;
  };
  for (const std::string verb : {"show", "metrics", "compare", "plot", "tail", "logs", "rerun", "resume", "diff"}) {
    INFO(verb);
    CHECK(complete({verb, "20"}) == run.id + "\ttiny, finished\n");
    CHECK_THAT(complete({verb, "ti"}), StartsWith("tiny\n"));
  }
  CHECK(complete({"diff", "tiny", "20"}) == run.id + "\ttiny, finished\n");
  CHECK(complete({"plot", "tiny", "last", "20"}) == run.id + "\ttiny, finished\n");
  CHECK_THAT(complete({"compare", "tag:"}), StartsWith("tag:night"));
  CHECK_THAT(complete({"compare", "strategy:"}), ContainsSubstring("strategy:"));
  CHECK(complete({"tag", "last", "+n"}) == "+night\n");
  CHECK(complete({"tag", "last", "-n"}) == "-night\n");
  CHECK_THAT(complete({"ls", "--columns", "name,stat"}), StartsWith("name,status\t"));
  CHECK_THAT(complete({"compare", "--keys", "optimizer.l"}), StartsWith("optimizer.lr\t"));
  CHECK(complete({"plot", "last", "--metric", "mi"}) == "mine\n");
  CHECK(complete({"plot", "last", "--x", "s"}) == "step\n");
  CHECK(complete({"metrics", "--name", "mi"}) == "mine\n");
  CHECK(complete({"compare", "--best", "mi"}) == "mine\n");
  CHECK_THAT(complete({"compare", "--group-by", "optimizer.l"}), StartsWith("optimizer.lr\t"));
  CHECK(complete({"ls", "--tag", "n"}) == "night\n");
  CHECK(complete({"plot", "last", "-o", "x"}) == "");  // files
  CHECK(complete({"export", "last", "--metrics", ""}) == "csv\njsonl\nparquet\ntensorboard\nmlflow\n");
  CHECK_THAT(complete({"import", ""}), StartsWith("bundle\nmlflow\n") && EndsWith("torchtitan\nlightning\n"));
  CHECK(complete({"import", "csv", ""}) == "");  // files
  CHECK(complete({"ls", "sweep:l"}) == "sweep:last\tthe newest sweep\n");
}

TEST_CASE("bash completes runs and the values of filters", "[e2e]") {
  const OneRun run;
  const auto completed = [&](const std::string& line) {
    return run.shell("bash", "source <(runner completion bash)\nCOMP_LINE='" + line +
                                 "' COMP_POINT=" + std::to_string(line.size()) +
                                 "\ncompopt() { echo \"$@\"; }\n_runner\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
  };
  CHECK(completed("runner show 20") == run.id + "\n");
  CHECK(completed("runner plot tiny ti") == "tiny\n");
  CHECK(completed("runner compare tag:ni") == "night\n");  // bash replaces only the text after ":"
}

TEST_CASE("bash quotes what it inserts, and completes within quotes", "[e2e]") {
  const OneRun run;
  run.place.run({"rename", "last", "x;touch \"pwned\" $HOME"});
  run.place.run({"tag", "last", "+first try", "+it's"});
  const auto completed = [&](const std::string& line) {
    run.place.write("line", line);
    return run.shell("bash",
                     "source <(runner completion bash)\nCOMP_LINE=$(<line)\nCOMP_POINT=${#COMP_LINE}\n"
                     "compopt() { echo \"$@\"; }\n_runner\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
  };
  CHECK(completed("runner show x") == "x\\;touch\\ \\\"pwned\\\"\\ \\$HOME\n");
  CHECK(completed("runner show x\\;to") == "x\\;touch\\ \\\"pwned\\\"\\ \\$HOME\n");
  CHECK(completed("runner show \"x;t") == "x;touch \\\"pwned\\\" \\$HOME\n");
  CHECK(completed("runner show 'x;t") == "x;touch \"pwned\" $HOME\n");
  CHECK(completed("runner ls --tag fi") == "first\\ try\n");
  CHECK(completed("runner ls --tag 'first t") == "first try\n");
  CHECK(completed("runner ls --tag 'it") == "it'\\''s\n");
  CHECK(completed("runner ls --tag \"first try\" --columns name,stat") == "name,status\n");
  CHECK_FALSE(fs::exists(run.place.path() / "pwned"));
}

TEST_CASE("zsh completes runs and the values of filters", "[e2e]") {
  if (!there_is("zsh")) SKIP("there is no zsh");
  const OneRun run;
  const auto completed = [&](const std::string& words, int current) {
    return run.shell("zsh -f",
                     "compdef() { :; }\n_files() { print files; }\n"
                     "compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- \"$@\"; }\n"
                     "_describe() { print -rl -- \"${(@P)2}\"; }\nsource <(runner completion zsh)\nwords=(" +
                         words + ")\nCURRENT=" + std::to_string(current) + "\n_runner\n");
  };
  CHECK(completed("runner show 20", 3) == run.id + ":tiny, finished\n");
  CHECK(completed("runner plot tiny ti", 4) == "tiny:\n");
  CHECK(completed("runner compare tag:ni", 3) == "tag\\:night:1 run\n");
  CHECK(completed("runner plot -o ''", 4) == "files\n");
}

TEST_CASE("fish completes runs and the values of filters", "[e2e]") {
  if (!there_is("fish")) SKIP("there is no fish");
  const OneRun run;
  const auto completed = [&](const std::string& line) {
    return run.shell("fish --no-config", "runner completion fish | source\ncomplete -C '" + line + "'\n");
  };
  CHECK(completed("runner show 20") == run.id + "\ttiny, finished\n");
  CHECK_THAT(completed("runner compare tag:ni"), StartsWith("tag:night"));
  CHECK_THAT(completed("runner diff tiny ti"), StartsWith("tiny"));
}
