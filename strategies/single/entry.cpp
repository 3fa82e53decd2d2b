// `single`: one process, one device.
#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry single_entry() {
  return {
      .name = "single",
      .summary = "One process on one device; no data parallelism.",
      .aliases = {{"single_device"}, {"SingleDeviceStrategy"}},
      .distributed = false,
      .refuse = [](const Job& job) -> std::optional<std::string> {
        if (job.data_ranks() == 1) return std::nullopt;
        if (job.data_ranks() < job.world_size())
          return fmt::format(
              "strategy `single` has no data parallelism, but the data axis of the mesh has {} ranks; use `ddp` for a "
              "replica on each, or a mesh whose data axis has 1 rank, on {} in all",
              job.data_ranks(), counted(job.world_size() / job.data_ranks(), "rank"));
        return fmt::format(
            "strategy `single` uses one device, but the recipe uses {}; use `ddp` for a replica on each device, or set "
            "devices = 1 and num_nodes = 1",
            job.world_size());
      },
      .plan = [](const Job& job) { return replicated_plan(job, /*first_bytes=*/0, /*unit_bytes=*/0); }};
}

}  // namespace runner
