// Kinds of collectives, and how one is described to a person.
#pragma once
#include <string>

#include "strategies/collective/shm_layout.hpp"

namespace runner {

enum class Collective : uint32_t { all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, barrier };

const char* name_of(Collective kind);
/// "all_reduce #42 (12.3 MiB)".
std::string describe(const ShmOperation& operation);

}  // namespace runner
