#include "strategies/collective/operation.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "runner/base/text.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

static_assert(c10d::ReduceOp::SUM == 0 && c10d::ReduceOp::MAX == 4 && c10d::ReduceOp::PREMUL_SUM == 8);

std::string describe(const Operation& operation) {
  if (operation.sequence == 0) return "nothing yet";
  auto name = fmt::format("{} #{}", name_of(operation.kind), operation.sequence);
  if (operation.kind == Collective::barrier) return name;
  std::string how;
  if (operation.reduction != c10d::ReduceOp::SUM) how = fmt::format(", {}", name_of_reduction(operation.reduction));
  if (operation.kind == Collective::broadcast) how += fmt::format(" from rank {}", operation.root);
  if (operation.kind == Collective::reduce) how += fmt::format(" to rank {}", operation.root);
  if (operation.kind == Collective::transfer && operation.root > 0) how = fmt::format(", message {}", operation.root);
  return fmt::format("{} ({} of {}{})", name, format_bytes(operation.bytes),
                     c10::getDtypeNames(static_cast<c10::ScalarType>(operation.dtype)).first, how);
}

std::string describe_divergence(const std::vector<RankOperation>& operations) {
  std::vector<std::pair<std::string, std::vector<int>>> parties;  // what is done, by whom
  for (const auto& [rank, operation, group] : operations) {
    auto doing = describe(operation) + (group.empty() ? "" : " of " + group);
    auto party = std::find_if(parties.begin(), parties.end(), [&](const auto& known) { return known.first == doing; });
    if (party == parties.end()) party = parties.insert(parties.end(), {doing, {}});
    party->second.push_back(rank);
  }
  std::vector<std::string> clauses;
  for (const auto& [doing, ranks] : parties) {
    const char* verb = !clauses.empty() ? "" : ranks.size() == 1 ? "is " : "are ";
    clauses.push_back(fmt::format("{} {}in {}", describe_ranks(ranks), verb, doing));
  }
  return "ranks diverged: " + join(clauses, ", ");
}

}  // namespace runner
