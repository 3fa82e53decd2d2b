// The samples of a plug-in: rows of fields with fixed types and shapes.
#pragma once
#include <memory>

#include "runner/data/data.hpp"

namespace runner {

/// Opens the samples of a plug-in as open_dataset() does. With data.validation_fraction, samples drawn at random, always the same, are for
/// validation. Every integer is checked against the classes that the plug-in states, and the targets that count against the weight of the
/// sample.
std::unique_ptr<Dataset> open_plugin_samples(const Recipe::Data& data, Split split, int64_t seq_len,
                                             int64_t vocab_size);

}  // namespace runner
