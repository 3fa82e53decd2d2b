// Reads the parameters of a space from [sweep.space].
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/sweep/located_reader.hpp"
#include "runner/sweep/space.hpp"

namespace runner::sweep {

struct ReadSpace {
  std::vector<Parameter> parameters;     ///< in the order of the file
  std::map<std::string, Origin> places;  ///< position of each parameter in the file
};

/// Keys are dotted keys of the recipe ("optimizer.lr", quoted or as tables); values are a list of choices or one of
/// { uniform | log_uniform | integer | choice = ..., step, log, points, when }. `grid`: whether `points` is allowed.
/// Ends and choices are checked against the table of recipe keys.
ReadSpace read_space(const LocatedJson& table, bool grid, Problems& problems);

}  // namespace runner::sweep
