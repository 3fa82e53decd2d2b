#include "runner/lua/draws.hpp"

#include "runner/base/xxh3.hpp"

namespace runner::lua {

void Draws::seed(State& state, const std::string& script, const std::string& function, int64_t step) {
  const std::string name = script + "/" + function;
  auto& calls = calls_[name];
  if (calls.step != step) calls = {.step = step, .count = 0};
  const std::string hash = xxh3_hex(fmt::format("{}/{}/{}/{}", run_seed_, name, step, calls.count++));
  state.seed(std::stoull(hash.substr(0, 16), nullptr, 16));
}

}  // namespace runner::lua
