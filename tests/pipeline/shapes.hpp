// The shapes of pipelines over which the tests of schedules go, and the matcher of messages.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <string>
#include <vector>

#include "strategies/pipeline/schedule.hpp"

namespace runner {

/// Every schedule on up to 8 ranks, with up to 4 virtual stages and up to 3p micro-batches, in groups of every size.
inline std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 3 * p; ++m) {
      for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1})
        shapes.push_back({.schedule = schedule, .ranks = p, .micro_batches = m});
      for (int v = 2; v <= 4; ++v)
        for (int g = std::min(p, m); g <= m; ++g)
          shapes.push_back({.schedule = PipelineSchedule::interleaved_1f1b,
                            .ranks = p,
                            .virtual_stages = v,
                            .micro_batches = m,
                            .group = g});
    }
  return shapes;
}

/// One shape of each schedule that is small enough to try every change of its order.
inline std::vector<PipelineShape> small_shapes() {
  return {{.schedule = PipelineSchedule::gpipe, .ranks = 3, .micro_batches = 3},
          {.schedule = PipelineSchedule::one_f_one_b, .ranks = 4, .micro_batches = 6},
          {.schedule = PipelineSchedule::zb_h1, .ranks = 3, .micro_batches = 5},
          {.schedule = PipelineSchedule::interleaved_1f1b, .ranks = 2, .virtual_stages = 3, .micro_batches = 5},
          {.schedule = PipelineSchedule::interleaved_1f1b,
           .ranks = 3,
           .virtual_stages = 2,
           .micro_batches = 8,
           .group = 4}};
}

inline std::string describe(const PipelineShape& shape) {
  return fmt::format("{} p={} v={} m={} g={}", name_of(shape.schedule), shape.ranks, shape.virtual_stages,
                     shape.micro_batches, shape.group);
}

inline auto says(const std::string& text) { return Catch::Matchers::Message(text); }

}  // namespace runner
