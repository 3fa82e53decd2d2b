// [sweep.space] -> parameters.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runner/sweep/located_reader.hpp"
#include "runner/sweep/space.hpp"

namespace runner::sweep {

struct ReadSpace {
  std::vector<Parameter> parameters;     ///< in the order of the file
  std::map<std::string, Origin> places;  ///< of each
};

/// Keys are dotted keys of the recipe ("optimizer.lr", quoted or as tables); values are a list of choices or one of
/// { uniform | log_uniform | integer | choice = ..., step, log, points, when }. `grid`: whether `points` means
/// something. Ends and choices are held against the table of recipe keys.
ReadSpace read_space(const LocatedJson& table, bool grid, Problems& problems);

}  // namespace runner::sweep
