#include "runner/selection/parallelism_hint.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "runner/base/text.hpp"

namespace runner {

namespace {

struct Hint {
  std::vector<std::string_view> names;  ///< in lower case, without '_' and '-'
  std::string_view text;
};

const std::array<Hint, 5>& hints() {
  static const std::array<Hint, 5> list = {
      Hint{.names = {"contextparallel", "cp", "ring", "ringattention", "ulysses"},
           .text = "context parallelism is an axis that any strategy can have: devices.mesh = { context = 2 }, with "
                   "strategy.context_parallel = \"gather\", \"ring\" or \"ulysses\""},
      Hint{.names = {"sequenceparallel", "sp"},
           .text =
               "Megatron's sequence parallelism is strategy.sequence_parallel = true, the default with a tensor axis; "
               "DeepSpeed's is devices.mesh = { context = 2 } with strategy.context_parallel = \"ulysses\""},
      Hint{.names = {"megatron", "megatronlm", "megatronstrategy", "torchtitan", "nanotron", "3d", "3dparallel", "2d"},
           .text =
               "any strategy can have several axes: strategy = \"fsdp\" with devices.mesh = { pipeline = 2, shard = 2, "
               "tensor = 2 }"},
      Hint{.names = {"strategy", "parallelstrategy"},
           .text =
               "it is a base class in Lightning; a strategy of your own is strategy = \"lua:FILE.lua\", with base = "
               "\"single\", \"ddp\", \"fsdp\" or \"zero\" (strategies/README.md)"},
      Hint{.names = {"hsdp"},
           .text =
               "it is strategy = \"fsdp\" with devices.mesh = { replicate = 2, shard = 4 }, or with sharding_strategy "
               "= \"HYBRID_SHARD\""}};
  return list;
}

}  // namespace

std::string parallelism_hint(const std::string& name) {
  std::string plain = lower(name);
  std::erase_if(plain, [](char c) { return c == '_' || c == '-'; });
  for (const auto& hint : hints())
    if (std::ranges::find(hint.names, plain) != hint.names.end()) return std::string(hint.text);
  return "";
}

}  // namespace runner
