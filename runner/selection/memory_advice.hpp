// What an out-of-memory failure tells: what takes the memory by the entry's claim, and the cheapest ways out.
#pragma once
#include <string>
#include <vector>

#include "strategies/catalog.hpp"

namespace runner {

/// One change of the recipe that needs less memory.
struct WayOut {
  std::string change;  ///< as it stands in a recipe: "train.micro_batch_size = 2"
  std::string price;   ///< what it costs, in words
  int64_t saved_bytes = 0;
};

/// Ways to need at least 3 % less memory a rank with the same losses, cheapest first.
std::vector<WayOut> ways_out_of_memory(const Entry& entry, const Job& job);

/// Several lines: the parts of the claim, then the ways out. `job` is the one that ran out.
std::string memory_advice(const Entry& entry, const Job& job);

}  // namespace runner
