// Advice after an out-of-memory failure: the parts of memory that the entry predicts, and the cheapest changes that help.
#pragma once
#include <string>
#include <vector>

#include "strategies/catalog.hpp"

namespace runner {

/// One change of the recipe that needs less memory.
struct WayOut {
  std::string change;  ///< as in a recipe: "train.micro_batch_size = 2"
  std::string price;   ///< what it costs, in words
  int64_t saved_bytes = 0;
};

/// Changes that need at least 3 % less memory per rank, cheapest first. Only lower precision changes the losses.
std::vector<WayOut> ways_out_of_memory(const Entry& entry, const Job& job);

/// Several lines: the predicted parts of memory, then the changes. `job`: the job that ran out of memory.
std::string memory_advice(const Entry& entry, const Job& job);

}  // namespace runner
