// Whether repeated measurements on a machine with other work can be used, and their result.
//
// Measurements are repeated in turns: each has one turn, then each has another. Other work only adds time, so the
// result is the minimum over the turns in which this process got all the CPU time that it wanted. It is settled when a
// second such turn is close to it. If another process computes all the time, there is no such turn. If the kernel does
// not count waiting, or if others take memory bandwidth but no CPU, only differences between the turns show it.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Some runs of the same work in a row.
struct Turn {
  double seconds = 0;  ///< of the fastest run
  double lost = 0;     ///< lost_share() of the turn
};

struct Figure {
  double seconds = 0;  ///< 0: none
  bool settled() const { return seconds > 0; }
};

Figure figure_of(const std::vector<Turn>& turns);

/// Why these measurements cannot be used: too few of them settled, or the machine became slower meanwhile. Empty: those
/// that settled can be used.
std::string disturbance(const std::vector<std::vector<Turn>>& measurements);

}  // namespace runner
