// Simulated time: how long tasks take, and what a device has done until when. Results do not depend on it.
#pragma once
#include <limits>

namespace runner::simulated {

/// A task begins when the task before it in its stream has ended, and what it waits for. The host takes no time.
struct Speeds {
  static constexpr double unlimited = std::numeric_limits<double>::infinity();
  double flops = unlimited;       ///< per second, of matrix products
  double bytes = unlimited;       ///< per second, of the tensors of other kernels
  double wire_bytes = unlimited;  ///< per second, of the complete tensor of a collective; an all_reduce moves it twice
};

/// Of one device since the beginning of the Simulation, in seconds.
struct TimeStatistics {
  double end = 0;           ///< of the last task of the default stream
  double computed = 0;      ///< in which the default stream has run kernels
  double communicated = 0;  ///< in which other streams have run collectives
  /// In which the default stream has waited.
  double exposed() const { return end - computed; }
};

}  // namespace runner::simulated
