#include "runner/config/streaming_conflicts.hpp"

namespace runner {

std::vector<StreamingConflict> streaming_conflicts(const Recipe& recipe) {
  const auto& data = recipe.data;
  std::vector<StreamingConflict> conflicts;
  const auto unless = [&](bool fits, const char* key, const char* message) {
    if (!fits) conflicts.push_back({key, message});
  };
  if (!data.streaming) return conflicts;
  unless(data.format != "text" || data.tokenizer != "bytes", "data.tokenizer",
         "streaming tokenises during the training, and the bytes of a text need no tokenising: remove data.streaming");
  unless(!data.validation_fraction, "data.validation_fraction",
         "with streaming, the end of the data is not known when the training begins: name files in data.validation");
  unless(!recipe.train.max_epochs, "train.max_epochs",
         "with streaming, the steps of an epoch are not known when the training begins: use train.max_steps");
  unless(data.sources.empty(), "data.sources",
         "with streaming, the sizes of the sources are not known: use data.train");
  unless(!data.group_by_length, "data.group_by_length", "with streaming, the lengths of later samples are not known");
  unless(!data.order, "data.order", "with streaming, the number of samples is not known when the training begins");
  unless(!data.is_table() && !data.labels_texts(), "data.target",
         "streaming is for language models: labels and columns are read before the training begins");
  unless(!data.gives_samples(), "data.plugin", "streaming is for records, and this plug-in gives samples");
  return conflicts;
}

}  // namespace runner
