// Turns a LibTorch exception that a script caused into an error at the script's line.
#pragma once
#include <exception>
#include <string>

namespace runner {

/// For lua::StateOptions::mistake_of: the first line of LibTorch's message. Memory that is out and ranks that are lost
/// are nobody's mistake: empty for those, and for what is not LibTorch's.
std::string torch_mistake(const std::exception& error);

}  // namespace runner
