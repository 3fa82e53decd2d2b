// Ranks that stop or die while others wait for them: the run ends and names the rank, over every transport.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Trains until rank 1 has got `signal`, and returns what the command said.
CommandResult train_until(int signal, const std::vector<std::string>& settings) {
  Workplace place;
  write_tiny_recipe(place, "");
  std::vector<std::string> command{"run", "tiny.toml", "--set", "train.max_steps=100000"};
  command.insert(command.end(), settings.begin(), settings.end());
  const pid_t run = place.start(command, "training");
  const bool trains = wait_until(
      [&] {
        return slurp(place.path() / "training.err").find("step ") != std::string::npos &&
               place.run({"metrics", "last"}).code == 0;
      },
      120);
  pid_t rank_1 = 0;
  for (const auto& event : events_of(place, "ready"))
    if (event.at("rank") == 1) rank_1 = event.at("pid");
  if (trains && rank_1 > 0) ::kill(rank_1, signal);
  if (!trains) ::kill(run, SIGTERM);
  CHECK(trains);
  CHECK(rank_1 > 0);
  return place.finish(run, "training");
}

const std::vector<std::vector<std::string>> forms{
    {"strategy=fsdp"},
    {"strategy=ddp", "devices.process_group_backend=gloo"},
    {"strategy=single", "devices.mesh={pipeline=2}", "train.micro_batch_size=3"},
    {"strategy=single", "devices.mesh={pipeline=2}", "train.micro_batch_size=3", "devices.process_group_backend=gloo"},
};

}  // namespace

TEST_CASE("a run whose rank is stopped ends and names the rank", "[e2e][hang]") {
  auto settings = GENERATE(from_range(forms));
  settings.push_back("train.timeout=8s");  // half of it is the limit for a stopped process
  const auto result = train_until(SIGSTOP, settings);
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("rank 1: the process "));
  CHECK_THAT(result.err, ContainsSubstring(" has been stopped for "));
}

TEST_CASE("a run whose rank is killed ends at once, also if Gloo does not notice it", "[e2e][hang]") {
  const auto result = train_until(SIGKILL, GENERATE(from_range(forms)));  // collectives would wait for half an hour
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("rank 1 was killed by signal 9"));
}
