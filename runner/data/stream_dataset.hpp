// A stream of tokens as samples of equal length.
#pragma once
#include <memory>

#include "runner/data/formats.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

/// Tokens [first, first + count) of a stream that belong to a split.
struct StreamPart {
  int64_t first, count;
};
/// The part of a stream for a split, with data.validation_fraction: the last part of the tokens, rounded to the nearest token, is
/// for validation. The cut does not depend on seq_len, and no token is in both parts.
StreamPart part_of_split(int64_t tokens, double fraction, Split split);

/// Sample k is tokens [k*T, k*T + T] of the split's part: the last target of a sample is the first input of the next one. Throws
/// Error(usage) if the split's part is too short for one sample; for a part of streamed data, returns nullptr then.
std::unique_ptr<Dataset> stream_dataset(const Recipe::Data& data, Split split,
                                        std::shared_ptr<const TokenStream> stream, int64_t seq_len,
                                        StreamedPart* streamed = nullptr);

}  // namespace runner
