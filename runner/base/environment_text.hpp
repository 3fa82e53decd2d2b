// ${env:NAME} and ${env:NAME:-default} in texts.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// Replaces the references. A variable that is not set and has no default becomes "", after a call of `missing` with its name.
std::string expand_environment(const std::string& text,
                               const std::function<void(const std::string& name)>& missing = {});

/// The names in `text` that are not set and have no default.
std::vector<std::string> missing_variables(const std::string& text);

/// A command for /bin/sh in which the shell itself replaces the references, so that no character of a value has a meaning for the
/// shell, and the list of processes does not show it. ${env:NAME} becomes "${NAME}", also between quotes.
std::string shell_references(const std::string& command);

/// `given`, or else the value of an environment variable that is set and not empty, or else `otherwise`.
std::string given_or_variable(const std::optional<std::string>& given, const char* variable,
                              const std::string& otherwise);

}  // namespace runner
