// Where the documents of a token stream end, and how many targets each has.
#pragma once
#include <cstdint>
#include <vector>

namespace runner {

struct DocumentIndex {
  std::vector<int64_t> ends;     ///< the position behind the last token of each document
  std::vector<int32_t> targets;  ///< supervised tokens of each that have a token before them

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  int64_t begin(int64_t document) const { return document == 0 ? 0 : ends[static_cast<size_t>(document - 1)]; }
  int64_t end(int64_t document) const { return ends[static_cast<size_t>(document)]; }
};

}  // namespace runner
