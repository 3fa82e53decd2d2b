#include "runner/report/pipeline_text.hpp"

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "runner/report/table.hpp"

namespace runner {

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
    rows.push_back({fmt::format("  rank {} of {}", rank, shape.ranks),
                    blocks_text(*pipeline.models[static_cast<size_t>(rank)]),
                    fmt::format("{:.0f} %", 100 * pipeline.busy(rank) / work),
                    format_bytes(pipeline.memory.of(rank).total())});
  return text + format_table({{""}, {"blocks", false, true}, {"work", true}, {"tensors in a step", true}}, rows);
}

}  // namespace runner
