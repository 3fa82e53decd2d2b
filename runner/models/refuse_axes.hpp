// What refusals of axes (refuse_division() in models.hpp) and the specs of divided models have in common.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace runner {

/// Why `ranks` ranks cannot divide the `units` units of a key, without which a rank would have none; nullopt if they can.
std::optional<std::string> refuse_few(const char* key, int64_t units, int ranks);

}  // namespace runner
