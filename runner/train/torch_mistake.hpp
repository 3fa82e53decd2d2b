// Turns a LibTorch exception that a script caused into an error at the script's line.
#pragma once
#include <exception>
#include <string>

namespace runner {

/// For lua::StateOptions::mistake_of: the first line of LibTorch's message. Empty for out-of-memory errors and lost
/// ranks, which are not the script's fault, and for exceptions that are not LibTorch's.
std::string torch_mistake(const std::exception& error);

}  // namespace runner
