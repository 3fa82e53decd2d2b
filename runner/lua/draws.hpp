// The random numbers of a training's scripts. math.random is seeded before each call of a script's function, so that
// the numbers of a call are the same in a run that was resumed.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "runner/base/xxh3.hpp"
#include "runner/lua/state.hpp"

namespace runner::lua {

class Draws {
 public:
  explicit Draws(int64_t run_seed) : run_seed_(run_seed) {}
  /// Call before a call of `function` of `script`. The seed depends on the run's seed, these names, the step and the
  /// number of earlier calls of the function in that step.
  void seed(State& state, const std::string& script, const std::string& function, int64_t step) {
    const std::string name = script + "/" + function;
    auto& calls = calls_[name];
    if (calls.step != step) calls = {.step = step, .count = 0};
    const std::string hash = xxh3_hex(fmt::format("{}/{}/{}/{}", run_seed_, name, step, calls.count++));
    state.seed(std::stoull(hash.substr(0, 16), nullptr, 16));
  }

 private:
  struct Calls {
    int64_t step = -1, count = 0;  ///< calls in that step
  };
  int64_t run_seed_;
  std::map<std::string, Calls> calls_;  ///< by script and function
};

}  // namespace runner::lua
