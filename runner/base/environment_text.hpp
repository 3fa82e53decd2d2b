// ${env:NAME} and ${env:NAME:-default} in texts.
#pragma once
#include <functional>
#include <string>

namespace runner {

/// Replaces the references. A variable that is not set and has no default becomes "", after a call of `missing` with its name.
std::string expand_environment(const std::string& text,
                               const std::function<void(const std::string& name)>& missing = {});

}  // namespace runner
