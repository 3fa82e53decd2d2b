#include "runner/selection/data_fit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/selection/batch.hpp"

namespace runner {

void check_lengths(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& model = recipe.model;
  if (recipe.data.seq_len && *recipe.data.seq_len > model.max_seq_len)
    diagnostics.push_back({.place = recipe.origin("data.seq_len"),
                           .code = "contradiction",
                           .message = fmt::format("data.seq_len = {} is longer than model.max_seq_len = {}",
                                                  *recipe.data.seq_len, model.max_seq_len),
                           .other = recipe.origin("model.max_seq_len"),
                           .other_message = "max_seq_len is set here"});
  if (recipe.data.has_token_ids() && !model.vocab_size)
    diagnostics.push_back({recipe.origin("data.format"), "missing-key",
                           recipe.data.is_plugin()
                               ? "the plug-in does not state the number of classes of `inputs`; set model.vocab_size"
                               : "\"bin\" files do not contain the vocabulary size; set model.vocab_size"});
}

void resolve_lengths(Plan& plan, std::optional<int64_t> tokenizer_vocab, std::vector<Diagnostic>& diagnostics) {
  auto& recipe = plan.recipe;
  if (!is_language_model(recipe.model.name)) {
    plan.seq_len = 1;
    plan.vocab_size = recipe.model.num_labels.value_or(1);
    return;
  }
  check_lengths(recipe, diagnostics);
  if (!recipe.data.seq_len) {
    recipe.data.seq_len = recipe.model.max_seq_len;
    recipe.origins["data.seq_len"] = decided("model.max_seq_len");
  }
  plan.seq_len = *recipe.data.seq_len;
  if (!recipe.model.vocab_size && tokenizer_vocab) {
    recipe.model.vocab_size = tokenizer_vocab;
    recipe.origins["model.vocab_size"] = decided("the tokenizer's vocabulary");
  } else if (tokenizer_vocab && *recipe.model.vocab_size < *tokenizer_vocab) {
    diagnostics.push_back({.place = recipe.origin("model.vocab_size"),
                           .code = "contradiction",
                           .message = fmt::format("model.vocab_size = {} is smaller than the tokenizer's {}",
                                                  *recipe.model.vocab_size, *tokenizer_vocab),
                           .other = recipe.origin("data.tokenizer"),
                           .other_message = "the tokenizer is named here"});
  }
  plan.vocab_size = recipe.model.vocab_size.value_or(0);
}

bool check_micro_batch(const Recipe& recipe, const ModelSpec& part, std::vector<Diagnostic>& diagnostics) {
  const int64_t rows = std::max<int64_t>(1, recipe.train.micro_batch_size.value_or(1));  // "auto" is 0
  if (!is_language_model(recipe.model.name) || rows * part.seq_len <= micro_batch_tokens_most) return true;
  const std::string length = recipe.data.seq_len ? "data.seq_len" : "model.max_seq_len";
  diagnostics.push_back(
      {recipe.origin(rows > 1 ? "train.micro_batch_size" : length), "out-of-bounds",
       fmt::format("a micro-batch of {} of {} tokens is too large: a rank has at most {} tokens at a time",
                   counted(rows, "sequence"), part.seq_len, micro_batch_tokens_most)});
  return false;
}

void check_batch_fields(const Recipe& recipe, const ModelSpec& model, const std::vector<BatchField>& provided,
                        std::vector<Diagnostic>& diagnostics) {
  const auto missing = missing_fields(model.batch, provided);
  if (missing.empty()) return;
  diagnostics.push_back(
      {.place = recipe.origin("data.format"),
       .code = "missing-field",
       .message = fmt::format("the model {} needs {} for each sample, and data.format = \"{}\" provides {}",
                              model.family, describe(missing), recipe.data.format, describe(provided)),
       .other = recipe.origin("model.name"),
       .other_message = "the model is chosen here",
       .section = "data"});
}

}  // namespace runner
