// Makes strategies by name. The names are those in catalog.cpp.
#include "runner/base/error.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/ddp/strategy.hpp"
#include "strategies/fsdp/strategy.hpp"
#include "strategies/single/strategy.hpp"
#include "strategies/zero/strategy.hpp"

namespace runner {

std::unique_ptr<Strategy> make_strategy(const std::string& name, StrategySetup setup) {
  if (name == "single") return make_single(std::move(setup));
  if (name == "ddp") return make_ddp(std::move(setup));
  if (name == "fsdp") return make_fsdp(std::move(setup));
  if (name == "zero") return make_zero(std::move(setup));
  RUNNER_CHECK(false, "no strategy `{}`", name);
  return nullptr;
}

}  // namespace runner
