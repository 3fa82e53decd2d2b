// Samples of data that are tokenised while the training runs (data.streaming).
#pragma once
#include <functional>
#include <memory>

#include "runner/data/data.hpp"
#include "runner/data/formats.hpp"

namespace runner {

/// Turns the tokens of a part into samples; nullptr: it has none. Without `part`, the tokens are all of the data, and no sample is an
/// error.
using SamplesOfPart = std::function<std::unique_ptr<Dataset>(OpenData opened, StreamedPart* part)>;

/// The samples of the data, which are those of data that are tokenised in advance, except that rows are packed inside a part. A part
/// has at least `part_bytes` of the data, and the tokens that a part leaves over belong to the next one. The first epoch shuffles the samples of each part, so a step needs no part but
/// its own; later epochs shuffle all samples. A part that is needed before it is tokenised is waited for, or tokenised here. So the
/// samples depend only on the data, not on time. `fields`: Dataset::fields(). size() waits for all parts. Throws the Error(usage) of
/// `samples_of` at the end of data without a sample.
std::unique_ptr<Dataset> streamed_dataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields,
                                          size_t part_bytes = streamed_part_bytes(0));

}  // namespace runner
