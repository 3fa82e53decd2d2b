#include "runner/report/axis_text.hpp"

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

std::string pipeline_text(const PipelinePlan& pipeline) {
  const auto& shape = pipeline.shape;
  std::string text = fmt::format(
      "pipeline: {}{}, {} micro-batch{} a step; {}; ranks wait for each other in {:.0f} % of a step (the bubble)\n",
      name_of(shape.schedule),
      shape.virtual_stages > 1 ? fmt::format(" with {} virtual stages a rank", shape.virtual_stages) : "",
      shape.micro_batches, shape.micro_batches == 1 ? "" : "es", pipeline.division, 100 * pipeline.bubble());
  double work = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) work += pipeline.busy(rank);
  std::vector<std::vector<std::string>> rows;
  for (int rank = 0; rank < shape.ranks; ++rank)
    rows.push_back(
        {fmt::format("  rank {} of {}", rank, shape.ranks), blocks_text(*pipeline.models[static_cast<size_t>(rank)]),
         fmt::format("{:.0f} %", 100 * pipeline.busy(rank) / work), format_bytes(pipeline.memory.of(rank).total())});
  return text + format_table({{""}, {"blocks", false, true}, {"work", true}, {"tensors in a step", true}}, rows);
}

}  // namespace runner
