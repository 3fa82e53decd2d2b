// Tells faults of the outside world (files, memory, texts) from bugs of this program, by the exceptions of the libraries.
#pragma once
#include <exception>
#include <optional>

#include "runner/base/error.hpp"

namespace runner {

/// The error for an exception that the standard library or the JSON library has thrown because of a path, the memory, a limit of the
/// system or a text: with the path and the reason, and ExitCode::environment or usage. Empty for one that only a bug can cause.
std::optional<Error> outside_fault(const std::exception& error);

}  // namespace runner
