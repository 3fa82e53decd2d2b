// Compares the settings of two supervisors key by key.
#include "runner/launch/introduction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t differences_max = 8;
constexpr int ranks_max = 1 << 20;

/// "train.max_steps is 40 there and 50 here", for every key whose values differ.
std::vector<std::string> differences(const json& here, const json& there) {
  std::vector<std::string> found;
  auto look = [&](const json& keys, bool both) {
    for (const auto& [section, entries] : keys.items())
      for (const auto& [key, value] : entries.items()) {
        auto pointer = json::json_pointer() / section / key;
        bool in_here = here.contains(pointer), in_there = there.contains(pointer);
        if ((in_here && in_there) != both || (both && here[pointer] == there[pointer])) continue;
        auto write = [&](const json& side, bool present) { return present ? side[pointer].dump() : "not set"; };
        found.push_back(
            fmt::format("{}.{} is {} there and {} here", section, key, write(there, in_there), write(here, in_here)));
      }
  };
  look(here, true);
  look(here, false);
  look(there, false);
  return found;
}

}  // namespace

json to_json(const Introduction& introduction) {
  const Placement& p = introduction.placement;
  return {{"job", p.job_id},
          {"launched", p.launched},
          {"elastic", p.elastic},
          {"rank", p.rank},
          {"world_size", p.world_size},
          {"local_size", p.local_size},
          {"node_rank", p.node_rank},
          {"num_nodes", p.num_nodes},
          {"host", introduction.host},
          {"alike", introduction.alike}};
}

Introduction introduction_from_json(const json& json) {
  Introduction introduction;
  Placement& p = introduction.placement;
  p.job_id = text_in(json, "job");
  p.launched = flag_in(json, "launched");
  p.elastic = json.contains("elastic") && flag_in(json, "elastic");
  p.world_size = number_in(json, "world_size", 1, ranks_max);
  p.local_size = number_in(json, "local_size", 1, p.world_size);
  p.num_nodes = number_in(json, "num_nodes", 1, p.world_size);
  // Nodes that join an elastic run have the place of a second node, whatever its size is.
  p.rank = number_in(json, "rank", 0, p.elastic ? ranks_max : p.world_size - 1);
  p.node_rank = number_in(json, "node_rank", 0, p.elastic ? ranks_max : p.num_nodes - 1);
  introduction.host = text_in(json, "host");
  introduction.alike = json.value("alike", nlohmann::json());
  const auto& alike = introduction.alike;
  if (!alike.is_object() || !std::ranges::all_of(alike, [](const auto& section) { return section.is_object(); }))
    throw BadMessage("alike");
  return introduction;
}

std::string describe(const Introduction& introduction) {
  if (introduction.placement.elastic) return fmt::format("the node {}", introduction.host);
  return fmt::format("rank {} (node {}, host {})", introduction.first_rank(), introduction.placement.node_rank,
                     introduction.host);
}

std::string misplacement(const Introduction& leader, const Introduction& other) {
  const Placement &here = leader.placement, &there = other.placement;
  if (here.elastic != there.elastic)
    return fmt::format(
        "{} was started for {} run, rank 0 for {} one: every node needs the same devices.min_nodes and max_nodes",
        describe(other), there.elastic ? "an elastic" : "a fixed", here.elastic ? "an elastic" : "a fixed");
  if (here.elastic && here.local_size == there.local_size) return "";
  if (here.num_nodes != there.num_nodes || here.local_size != there.local_size || here.world_size != there.world_size)
    return fmt::format(
        "{} was started for {} x {}, rank 0 for {} x {}: every node needs the same number of ranks (devices.devices, "
        "or devices.cpu_processes on CPU)",
        describe(other), counted(there.num_nodes, "node"), counted(there.local_size, "rank"),
        counted(here.num_nodes, "node"), counted(here.local_size, "rank"));
  if (here.launched != there.launched || (!there.launched && there.rank != there.node_rank * there.local_size))
    return fmt::format("{} does not have the place of a node of this run", describe(other));
  if (there.rank + other.rank_count() > there.world_size)
    return fmt::format("{} is beyond the {} ranks of the run", describe(other), there.world_size);
  return "";
}

std::string disagreement(const Introduction& leader, const Introduction& other) {
  auto found = differences(leader.alike, other.alike);
  if (found.empty()) return "";
  size_t more = found.size() > differences_max ? found.size() - differences_max : 0;
  found.resize(found.size() - more);
  return fmt::format("{} was not started like rank 0: {}{}; every node needs the same command, recipe and version",
                     describe(other), join(found, ", "), more ? fmt::format(", and {} more", more) : "");
}

}  // namespace runner
