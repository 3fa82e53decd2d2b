// Checks of option values that several verbs use.
#pragma once
#include <CLI/CLI.hpp>

namespace runner {

/// An integer of at least 1.
CLI::Validator at_least_one();

}  // namespace runner
