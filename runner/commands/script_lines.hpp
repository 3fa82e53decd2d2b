// Which lines of a script ran in a tiny training.
#pragma once
#include <string>

#include "runner/commands/tiny_training.hpp"

namespace runner {

/// Prints the lines of the training's script that never ran. `everything`: whether that are none. `text`: what to say of them, such as
/// "lines that never ran: 8-9, 12".
struct ScriptLines {
  bool everything = false;
  std::string text;
};
ScriptLines describe_lines(const TinyTraining& training);

}  // namespace runner
