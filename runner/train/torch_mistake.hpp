// Turns a LibTorch exception that a script caused into an error at the script's line.
#pragma once
#include <c10/util/Exception.h>
#include <exception>
#include <string>

#include "runner/base/text.hpp"

namespace runner {

/// For lua::StateOptions::mistake_of: the first line of LibTorch's message. Empty for out-of-memory errors and lost
/// ranks, which are not the script's fault, and for exceptions that are not LibTorch's.
inline std::string torch_mistake(const std::exception& error) {
  const auto* refusal = dynamic_cast<const c10::Error*>(&error);
  if (!refusal || dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const c10::DistError*>(&error))
    return "";
  return first_line(refusal->what_without_backtrace());
}

}  // namespace runner
