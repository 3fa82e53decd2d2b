// Streams of tokens as samples: of equal length, tokenised while the training runs (data.streaming), or for masked language modelling
// (Devlin et al. 2019, BERT, section 3.1), where some tokens are hidden, and the model predicts them.
#pragma once
#include <functional>
#include <memory>

#include "runner/data/formats.hpp"

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

/// Turns the tokens of a part into samples; nullptr: it has none. Without `part`, the tokens are all of the data, and no sample is an
/// error.
using SamplesOfPart = std::function<std::unique_ptr<Dataset>(OpenData opened, StreamedPart* part)>;

/// The samples of the data, which are those of data that are tokenised in advance, except that rows are packed inside a part. A part
/// has at least `part_bytes` of the data, and the tokens that a part leaves over belong to the next one. The first epoch shuffles the
/// samples of each part, so a step needs no part but its own; later epochs shuffle all samples. A part that is needed before it is
/// tokenised is waited for, or tokenised here. So the samples depend only on the data, not on time. `fields`: Dataset::fields(). size()
/// waits for all parts. Throws the Error(usage) of `samples_of` at the end of data without a sample.
std::unique_ptr<Dataset> streamed_dataset(DataParts parts, SamplesOfPart samples_of, std::vector<BatchField> fields,
                                          size_t part_bytes = streamed_part_bytes(0));

/// Rows of packed_fields() with attention inside each sequence; padding is a sequence of its own. Of each sequence the share
/// data.mlm_probability of its tokens, at least one, is predicted: these have targets. 80 % of them are replaced by the mask token,
/// 10 % by a random token, and 10 % stay as they are. Special tokens are never chosen. The choice depends only on seed, epoch,
/// sample and place. So it differs from epoch to epoch, and does not depend on ranks or on a resume.
///
/// Documents are samples as in document_dataset(), of at most seq_len tokens. Text is cut into windows; if the
/// tokenizer puts tokens around a text, it puts them around each window. Throws Error(usage) if the tokenizer has no
/// mask token, or if no sample is left; for a part of streamed data, returns nullptr then.
std::unique_ptr<Dataset> masked_dataset(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                        const Tokenizer& tokenizer, StreamedPart* streamed = nullptr);

}  // namespace runner
