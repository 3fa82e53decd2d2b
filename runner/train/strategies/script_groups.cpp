#include "runner/train/strategies/script_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "runner/base/hash.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/error.hpp"
#include "runner/train/hooks/exchange.hpp"

namespace runner {

using lua::ScriptMistake;
using nlohmann::json;

namespace {

constexpr size_t text_bytes = 200;

/// At most text_bytes: of a longer text the beginning, and a hash of all of it.
std::string shortened(const std::string& text) {
  if (text.size() <= text_bytes) return text;
  const auto end = fmt::format("... (hash {:016x})", fnv1a(text));
  return text.substr(0, text_bytes - end.size()) + end;
}

/// "rank 0 in `a`, ranks 1, 2 in `b`".
std::string describe_texts(const std::vector<std::string>& texts, const std::string& unnamed) {
  std::map<std::string, std::vector<int>> ranks;
  for (size_t rank = 0; rank < texts.size(); ++rank) ranks[texts[rank]].push_back(static_cast<int>(rank));
  std::vector<std::string> parts;
  for (const auto& [text, of] : ranks)
    parts.push_back(fmt::format("{} in {}", describe_ranks(of), text.empty() ? unnamed : "`" + text + "`"));
  return join(parts, ", ");
}

bool differ(const std::vector<std::string>& texts) {
  return std::ranges::any_of(texts, [&](const auto& text) { return text != texts.front(); });
}

}  // namespace

void named_barrier(World& world, const std::string& name) {
  if (world.size == 1) return;
  // Ranks that are in another collective get an error that says "barrier". Not every backend of devices has one.
  if (world.control != world.group || world.device.is_cpu()) barrier(world.control);
  const auto texts = gather_texts(world, shortened(name), text_bytes);
  if (differ(texts))
    throw ScriptMistake("barrier: ranks wait in different barriers: " +
                        describe_texts(texts, "a barrier without a name"));
}

std::vector<std::vector<int>> rank_lists(const World& world, const std::string& name, const json& given,
                                         int local_size) {
  const auto wrong = [&](const std::string& what) { return ScriptMistake(fmt::format("group: `{}`: {}", name, what)); };
  std::vector<std::vector<int>> lists;
  if (name.empty()) throw ScriptMistake("group: the name must not be empty");
  if (name == "node") {
    if (!given.is_null()) throw wrong("this name is for the ranks of a node: call it without a list of ranks");
    for (int first = 0; first < world.size; first += local_size) {
      auto& list = lists.emplace_back();
      for (int rank = first; rank < std::min(first + local_size, world.size); ++rank) list.push_back(rank);
    }
    return lists;
  }
  if (given.is_null()) throw wrong("give the ranks, such as {0, 1}; only \"node\" needs none");
  if (!given.is_array() || given.empty()) throw wrong("the ranks must be a list such as {0, 1}, not " + given.dump());
  std::vector<bool> taken(static_cast<size_t>(world.size));
  for (const auto& ranks : given.front().is_array() ? given : json::array({given})) {
    auto& list = lists.emplace_back();
    if (!ranks.is_array() || ranks.empty()) throw wrong("a group is a list of ranks, not " + ranks.dump());
    for (const auto& rank : ranks) {
      if (!rank.is_number_integer() || rank < 0 || rank >= world.size)
        throw wrong(fmt::format("{} is not a rank of {}", rank.dump(), world.size));
      if (taken[rank.get<size_t>()]) throw wrong(fmt::format("rank {} is in it twice", rank.get<int>()));
      taken[rank.get<size_t>()] = true;
      list.push_back(rank);
    }
    std::ranges::sort(list);
  }
  return lists;
}

ScriptGroup make_script_group(World& world, const std::string& name, const std::vector<std::vector<int>>& lists) {
  if (world.size > 1) {
    const auto texts = gather_texts(world, shortened(fmt::format("{} {}", name, lists)), text_bytes);
    if (differ(texts))
      throw ScriptMistake("group: every rank must make the same groups, in the same order: " +
                          describe_texts(texts, ""));
  }
  ScriptGroup mine;
  for (size_t i = 0; i < lists.size(); ++i) {
    const auto& ranks = lists[i];
    const auto place = std::ranges::find(ranks, world.rank);
    const auto group = ranks.size() > 1 ? world.make_subgroup(ranks, fmt::format("{}_{}", name, i)) : ProcessGroup();
    if (place == ranks.end()) continue;
    mine.ranks = ranks;
    mine.world = std::make_shared<World>();
    mine.world->rank = static_cast<int>(place - ranks.begin());
    mine.world->size = static_cast<int>(ranks.size());
    mine.world->device = world.device;
    mine.world->accelerator = world.accelerator;
    mine.world->group = group;
    mine.world->control = group;
  }
  return mine;
}

}  // namespace runner
