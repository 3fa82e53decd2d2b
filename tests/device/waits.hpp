// The places in the program that order work on devices: each wait for an event or a collective, and each record_stream.
// A test can leave out all calls from one place, to show that the simulated device notices it.
#pragma once
#include <string>
#include <vector>

namespace runner::simulated {

/// From now on, places are collected. The calls from `left_out` have no effect; empty: all have.
void watch_waits(const std::string& left_out);
/// Ends that. Returns the places in the order of their first calls: the function and the offset in it.
std::vector<std::string> watched_waits();

/// The simulated device calls this at each wait. Returns true if the wait is left out.
bool wait_is_left_out();

}  // namespace runner::simulated
