#include "strategies/collective/operation.hpp"

#include <fmt/format.h>

#include "runner/base/text.hpp"

namespace runner {

const char* name_of(Collective kind) {
  static const char* names[] = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"};
  return names[static_cast<size_t>(kind)];
}

std::string describe(const ShmOperation& operation) {
  if (operation.sequence == 0) return "nothing yet";
  return fmt::format("{} #{} ({})", name_of(static_cast<Collective>(operation.kind)), operation.sequence,
                     format_bytes(static_cast<double>(operation.bytes)));
}

}  // namespace runner
