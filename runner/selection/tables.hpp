// The tables of schemas/ that this library reads. They are embedded at build time.
#pragma once
#include <string_view>

namespace runner {

extern const std::string_view selection_rules_text;  ///< schemas/selection_rules.toml
extern const std::string_view devices_text;          ///< schemas/devices.toml

}  // namespace runner
