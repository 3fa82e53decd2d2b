// One real rank for the process tests: makes its world from the environment, does what the first argument says, prints
// what came of it on stdout.
#include <torch/torch.h>

#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "runner/base/error.hpp"
#include "tests/collective/operations.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

WorldOptions options() {
  WorldOptions options = world_options_from_environment();
  options.backend = variable("BACKEND");
  options.timeout = std::chrono::milliseconds(std::stoi("0" + variable("TIMEOUT_MS")));
  if (options.timeout.count() == 0) options.timeout = std::chrono::seconds(60);
  options.rendezvous_timeout =
      std::chrono::seconds(variable("RENDEZVOUS_S").empty() ? 30 : std::stoi(variable("RENDEZVOUS_S")));
  return options;
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void check_operations(World& world) {
  Coverage coverage;
  if (variable("BACKEND") == "gloo") {
    coverage.exact = false;
    coverage.dtypes = coverage.large = {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64};
  }
  for (const auto& failure : OperationCheck(world.group, coverage).run()) say(failure);
  say("checked");
}

void reduce_for_ever(World& world) {
  for (int round = 0;; ++round) {
    all_reduce(world.group, torch::ones({1 << 20}));
    if (round == 10) say("running");
  }
}

const std::map<std::string, std::function<void(World&)>> modes = {
    {"check", check_operations},
    {"for_ever", reduce_for_ever},
};

}  // namespace

int main(int, char** argv) {
  at::set_num_threads(1);
  try {
    World world = make_world(options());
    modes.at(argv[1])(world);
    return 0;
  } catch (const Error& error) {
    say(error.what());
  } catch (const c10::Error& error) {
    say(error.what_without_backtrace());
  }
  return 1;
}
