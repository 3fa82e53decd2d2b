// Rank 8: TensorBoard's own reader and Python's csv read the values of the ledger, while a run is alive and after it was killed.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "tests/commands/resume_support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::testing;
using nlohmann::json;

namespace {

using Points = std::vector<std::pair<int64_t, double>>;

std::string python_with_tensorboard() {
  const char* chosen = std::getenv("RUNNER_TEST_PYTHON");
  std::string python = chosen ? chosen : "PYTHONPATH=" RUNNER_SOURCE_DIR "/.deps/transformers /usr/bin/python3";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0)
    SKIP(python << " has no tensorboard");
  return python;
}

json read_files(const Workplace& place, const std::string& python) {
  const auto command = fmt::format("{} {}/tests/commands/read_loggers.py {} >{}/read", python, RUNNER_SOURCE_DIR,
                                   only_run_dir(place), place.path().string());
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  return json::parse(slurp(place.path() / "read"));
}

/// The points of a metric up to `last`, as floats, because event files have floats.
Points points_of(const json& list, int64_t last = INT64_MAX) {
  Points points;
  for (const auto& point : list)
    if (point[0] <= last) points.emplace_back(point[0].get<int64_t>(), point[1].get<float>());
  return points;
}

}  // namespace

TEST_CASE("rank 8: event files and metrics.csv have the ledger's values, alive and after kill -9", "[e2e][rank8]") {
  const auto python = python_with_tensorboard();
  Workplace place;
  write_tiny_recipe(place, fsdp + checkpoints);
  const std::vector<std::string> settings = {"--set", "logging.loggers=[\"tensorboard\", \"csv\"]",
                                             "train.max_steps=2000", "train.val_check_interval=5"};
  std::vector<std::string> arguments = {"run", "tiny.toml"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  const pid_t run = place.start(arguments);
  REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 60));
  const auto ledger = place.points("loss");  // first, because the files may have later values
  REQUIRE_FALSE(ledger.empty());
  const auto written = [&](const char* file) {
    return points_of(read_files(place, python).at(file).at("loss"), ledger.back()[0].get<int64_t>());
  };
  for (const char* file : {"tensorboard", "csv"}) {
    INFO(file);
    CHECK(wait_until([&] { return written(file) == points_of(ledger); }, 20));  // they are written in the background
  }
  ::kill(run, SIGKILL);
  place.finish(run);

  const auto reached = place.points("loss").back()[0].get<int64_t>();
  const auto resumed = place.run({"resume", "--set", fmt::format("train.max_steps={}", reached + 10)});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const auto end = read_files(place, python);
  for (const char* name : {"loss", "lr", "grad_norm", "val_loss"})
    for (const char* file : {"tensorboard", "csv"}) {
      INFO(name << " in " << file);
      CHECK(points_of(end.at(file).at(name)) == points_of(place.points(name)));
    }
}
