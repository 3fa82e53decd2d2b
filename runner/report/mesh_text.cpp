#include "runner/report/mesh_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/report/table.hpp"

namespace runner {

std::string axes_text(const Candidate& candidate) {
  const bool only_data = std::ranges::all_of(candidate.axes, [](const auto& one) { return one.axis == Axis::data; });
  if (only_data || !candidate.step_seconds) return "";
  std::vector<std::vector<std::string>> rows;
  for (const auto& one : candidate.axes)
    rows.push_back({fmt::format("  {}", name_of(one.axis)), std::to_string(candidate.job.mesh.size(one.axis)),
                    format_bytes(one.wire_bytes), format_duration(one.seconds), format_duration(one.exposed),
                    fmt::format("{:.1f} %", 100 * one.exposed / *candidate.step_seconds)});
  return format_table({{"axis of the mesh"},
                       {"ranks", true},
                       {"sent in a step", true},
                       {"time", true},
                       {"exposed", true},
                       {"of the step", true}},
                      rows);
}

nlohmann::json axes_json(const Candidate& candidate) {
  auto list = nlohmann::json::array();
  for (const auto& one : candidate.axes)
    list.push_back({{"axis", name_of(one.axis)},
                    {"ranks", candidate.job.mesh.size(one.axis)},
                    {"wire_bytes", one.wire_bytes},
                    {"seconds", one.seconds},
                    {"exposed_seconds", one.exposed}});
  return list;
}

}  // namespace runner
