#include "runner/inference/model_tokenizer.hpp"

#include "runner/base/error.hpp"
#include "runner/data/data.hpp"

namespace runner {

std::unique_ptr<Tokenizer> open_model_tokenizer(const StoredModel& model, const std::string& cache_dir) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = make_tokenizer(model.recipe.data, cache_dir);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the model needs its tokenizer: {}", error.what()));
  }
  if (!model.tokenizer_digest.empty() && tokenizer->hash() != model.tokenizer_digest)
    throw usage_error(
        "the tokenizer {} has changed since the run trained with it, so its ids mean other tokens: restore the file",
        model.recipe.data.tokenizer);
  return tokenizer;
}

}  // namespace runner
