// The error of a call, as a text to compare.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner::testing {

/// "CODE: message" of the Error that `act` throws, or "accepted".
template <typename Act>
std::string refusal(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "accepted";
}

}  // namespace runner::testing
