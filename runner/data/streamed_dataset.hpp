// Samples of data that are tokenised while the training runs (data.streaming).
#pragma once
#include <functional>
#include <memory>

#include "runner/data/data.hpp"
#include "runner/data/formats.hpp"

namespace runner {

/// Turns the tokens of a part into samples; nullptr: it has none.
using SamplesOfPart = std::function<std::unique_ptr<Dataset>(OpenData opened)>;

/// The samples of the parts, one part after the other. The first epoch shuffles the samples of each part, so a step needs no part but
/// its own; later epochs shuffle all samples. A part that is needed before it is tokenised is waited for, or tokenised here. So the
/// samples depend only on the data, not on time. `fields`: Dataset::fields(). size() waits for all parts. Throws Error(usage) at the
/// end of data without a sample.
std::unique_ptr<Dataset> streamed_dataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields);

}  // namespace runner
