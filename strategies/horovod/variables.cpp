#include "strategies/horovod/variables.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace runner {

namespace {

struct Variable {
  const char* name;
  const char* meaning;     ///< what a recipe sets instead, or why there is nothing to set
  bool is_switch = false;  ///< off unless it is a number above 0; there is no note on one that is off
};

constexpr const char* own_thread = "nothing to do: gradients are reduced during backward, without a background thread";
constexpr const char* by_levels =
    "set strategy.hierarchical = true, which sums gradients inside each node, and then over the nodes";
constexpr const char* by_timeout = "set train.timeout, after which ranks that wait end the run and name the late ones";

constexpr Variable variables[] = {
    {.name = "HOROVOD_TIMELINE", .meaning = "set run.profiler = \"trace\", which writes a trace for Chrome"},
    {.name = "HOROVOD_TIMELINE_MARK_CYCLES", .meaning = own_thread, .is_switch = true},
    {.name = "HOROVOD_CYCLE_TIME", .meaning = own_thread},
    {.name = "HOROVOD_CACHE_CAPACITY", .meaning = own_thread},
    {.name = "HOROVOD_AUTOTUNE", .meaning = own_thread, .is_switch = true},
    {.name = "HOROVOD_AUTOTUNE_LOG", .meaning = own_thread},
    {.name = "HOROVOD_HIERARCHICAL_ALLREDUCE", .meaning = by_levels, .is_switch = true},
    {.name = "HOROVOD_HIERARCHICAL_ALLGATHER",
     .meaning = "nothing to do: the backend chooses the algorithm of an all-gather",
     .is_switch = true},
    {.name = "HOROVOD_TORUS_ALLREDUCE", .meaning = by_levels, .is_switch = true},
    {.name = "HOROVOD_STALL_CHECK_TIME_SECONDS", .meaning = by_timeout},
    {.name = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", .meaning = by_timeout},
    {.name = "HOROVOD_STALL_CHECK_DISABLE", .meaning = by_timeout, .is_switch = true},
    {.name = "HOROVOD_ADASUM_MPI_CHUNK_SIZE", .meaning = "nothing to do: vectors are sent as a whole"},
    {.name = "HOROVOD_DYNAMIC_PROCESS_SETS", .meaning = process_sets_here, .is_switch = true},
    {.name = "HOROVOD_ELASTIC",
     .meaning = "set devices.min_nodes and devices.max_nodes, and start `runner run` once on each node",
     .is_switch = true},
    {.name = "HOROVOD_LOG_LEVEL",
     .meaning = "set the variable RUNNER_LOG, the lowest level of messages: info, warning or error"},
};

/// Horovod's buffer is in bytes, and 0 sends each gradient by itself.
std::string fusion_note(std::string_view bytes) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), value);
  if (error != std::errc() || end != bytes.data() + bytes.size() || value <= 0)
    return "set strategy.bucket_cap_mb, the size of the buckets of gradients";
  return fmt::format("set strategy.bucket_cap_mb = {:.4g}", static_cast<double>(value) / (1 << 20));
}

/// As Horovod reads it.
bool is_on(const char* value) { return std::strtol(value, nullptr, 10) > 0; }

std::string note(const char* name, std::string_view meaning) {
  return fmt::format("the variable {} is not read: {}", name, meaning);
}

}  // namespace

std::vector<std::string> notes_of_horovod_variables() {
  std::vector<std::string> notes;
  constexpr const char* fusion = "HOROVOD_FUSION_THRESHOLD";
  if (const char* bytes = std::getenv(fusion)) notes.push_back(note(fusion, fusion_note(bytes)));
  for (const auto& variable : variables)
    if (const char* value = std::getenv(variable.name); value && (!variable.is_switch || is_on(value)))
      notes.push_back(note(variable.name, variable.meaning));
  return notes;
}

}  // namespace runner
