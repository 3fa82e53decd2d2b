// Samples of masked language modelling (Devlin et al. 2019, BERT, section 3.1): some tokens are hidden, and the model predicts them.
#pragma once
#include <memory>

#include "runner/data/formats.hpp"

namespace runner {

/// Rows of packed_fields() with attention inside each sequence; padding is a sequence of its own. Of each sequence the share
/// data.mlm_probability of its tokens, at least one, is predicted: these have targets. 80 % of them are replaced by the mask token,
/// 10 % by a random token, and 10 % stay as they are. Special tokens are never chosen. The choice depends only on seed, epoch,
/// sample and place. So it differs from epoch to epoch, and does not depend on ranks or on a resume.
///
/// Documents are samples as in document_dataset(), of at most seq_len tokens. Text is cut into windows; if the tokenizer puts tokens
/// around a text, it puts them around each window. Throws Error(usage) if the tokenizer has no mask token, or if no sample is left; for a part
/// of streamed data, returns nullptr then.
std::unique_ptr<Dataset> masked_dataset(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                        const Tokenizer& tokenizer, StreamedPart* streamed = nullptr);

}  // namespace runner
