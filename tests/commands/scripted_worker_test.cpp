// Runs and sweeps whose worker is a shell script: what the supervisor records and tells.
#include <catch2/catch_test_macros.hpp>

#include "sweep_support.hpp"

using namespace runner::testing;
using nlohmann::json;

namespace {

const std::string tiny =
    "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n[data]\nformat = \"text\"\n"
    "train = [\"text.txt\"]\ntokenizer = \"bytes\"\n[devices]\naccelerator = \"cpu\"\ndevices = 1\n"
    "[optimizer]\nname = \"adamw\"\nlr = 0.25\n[train]\nmax_steps = 2\nglobal_batch_size = 1\n";

struct ScriptedRuns : Workplace {
  ScriptedRuns(const std::string& worker, const std::string& more) {
    write("text.txt", std::string(4000, 'x'));
    write("tiny.toml", tiny + more);
    replace_worker(worker);
  }
  std::vector<json> lines_of(const std::string& name) const {
    std::vector<json> lines;
    std::istringstream text(slurp(path() / name));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
};

}  // namespace

TEST_CASE("values of hooks that are not finite are points, as those of the training itself") {
  ScriptedRuns place(
      "emit '{\"event\":\"metrics\",\"step\":1,\"values\":{\"a\":1.5,\"b\":null,\"c\":{\"nonfinite\":\"-inf\"},\"d\":{"
      "\"nonfinite\":\"nan\"},\"e\":\"text\"}}'\nexit 1",
      "");
  CHECK(place.run({"run", "tiny.toml"}).code == 1);
  CHECK(place.run({"metrics", "last", "--json"}).json().at("metrics") ==
        json::parse(R"({"a": [[1, 1.5]], "b": [[1, "NaN"]], "c": [[1, "-Infinity"]], "d": [[1, "NaN"]]})"));
}

TEST_CASE("logging.system_interval_s sets the pause between readings of the machine, and 0 turns them off") {
  ScriptedRuns place("emit '{\"event\":\"ready\",\"pid\":1}'\nsleep 1\nexit 1", "");
  const auto readings = [&](const std::string& seconds) {
    CHECK(place.run({"run", "tiny.toml", "--set", "logging.system_interval_s=" + seconds}).code == 1);
    const json system = place.run({"show", "last", "--json"}).json().at("system");
    return system.contains("memory/used_bytes") ? system["memory/used_bytes"]["count"].get<int>() : 0;
  };
  CHECK(readings("0") == 0);
  CHECK(readings("0.1") >= 5);
  const int usual = readings("10");
  CHECK(usual >= 1);
  CHECK(usual <= 3);
  const auto refused = place.run({"run", "tiny.toml", "--set", "logging.system_interval_s=0.01"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find("`system_interval_s` must be 0 (no readings) or at least 0.1, not 0.01") != std::string::npos);
}

TEST_CASE("a sweep tells its end once, and its trials only those who want them") {
  ScriptedRuns place(made_up_worker,
                     "[checkpoint]\nsave_at_end = false\n[logging]\nnotify = [{ command = \"cat >>sweep.json\" },\n"
                     "  { on = [\"end\", \"trial\"], command = \"cat >>trials.json\" },\n"
                     "  { command = \"exit 127\" }]\n");
  place.write("sweep.toml",
              "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\n"
              "set = { \"run.group\" = \"token=hunter2-hunter2\" }\n"
              "[sweep.space]\n\"optimizer.lr\" = { log_uniform = [1e-3, 1e-1], points = 2 }\n");
  ::signal(SIGCHLD, SIG_IGN);  // as a launcher may do
  const pid_t sweep = place.start({"sweep", "run", "sweep.toml"});
  ::signal(SIGCHLD, SIG_DFL);
  const auto swept = place.finish(sweep);
  INFO(swept.err);
  CHECK(swept.code == 0);
  CHECK(swept.err.find("to the command `exit 127` (1 try): exit code 127\n") != std::string::npos);
  CHECK(
      place.run({"query", "SELECT count(*) FROM config WHERE content LIKE '%hunter2%'", "--json"}).json().at("rows") ==
      nlohmann::json{{0}});
  const auto said = place.lines_of("sweep.json");
  REQUIRE(said.size() == 1);
  CHECK(said[0].at("kind") == "end");
  CHECK(said[0].at("sweep") == status_of(place).at("sweep").at("id"));
  CHECK_FALSE(said[0].contains("run"));
  CHECK(said[0].at("trials").at("finished") == 2);
  CHECK(said[0].at("best").at("metric") == "loss");
  const auto all = place.lines_of("trials.json");
  REQUIRE(all.size() == 3);
  CHECK(all[0].contains("run"));
  CHECK(all[1].contains("run"));
  CHECK(all[2] == said[0]);
}
