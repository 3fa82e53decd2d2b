// The lines of a script that ran in a tiny training, and how they are reported.
#pragma once
#include <string>

#include "runner/commands/tiny_training.hpp"

namespace runner {

/// The lines of the training's script that never ran. `everything`: every line ran. `text`: the words for the report, such as "lines
/// that never ran: 8-9, 12".
struct ScriptLines {
  bool everything = false;
  std::string text;
};
ScriptLines describe_lines(const TinyTraining& training);

}  // namespace runner
