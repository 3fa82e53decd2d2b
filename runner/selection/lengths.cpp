#include "runner/selection/lengths.hpp"

#include <fmt/format.h>

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

}  // namespace runner
