#include "runner/models/refuse_axes.hpp"

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/models.hpp"

namespace runner {

std::optional<std::string> refuse_few(const char* key, int64_t units, int ranks) {
  if (units >= ranks) return std::nullopt;
  return fmt::format("{} ranks cannot share {} = {}: each needs at least 1", ranks, key, units);
}

namespace {

/// Whether the model is a gpt or a decoder that predicts tokens.
bool predicts_next_tokens(const Recipe::Model& model) {
  return (family_kind(model.name) == "decoder" || model.name == "gpt") && !labels_texts(model);
}
/// The model in messages of what it cannot do.
std::string words_for(const Recipe::Model& model) {
  return labels_texts(model) ? "models with model.num_labels" : model.name;
}

/// What of [fine_tune] needs complete matrices.
std::optional<std::string> refuse_divided_adapters(const Recipe::FineTune& settings) {
  if (settings.adapts() && settings.has_magnitudes())
    return "fine_tune.method = \"dora\" needs the norms of complete rows, of which each rank has a part; allowed: "
           "\"lora\", \"freeze\" and \"full\"";
  if (settings.quantizes())
    return fmt::format(
        "fine_tune.quantization = \"{}\" has blocks of values of complete matrices, of which each rank has a part; "
        "allowed: \"none\"",
        settings.quantization);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> refuse_division(const Recipe& recipe, int ranks) {
  const auto& model = recipe.model;
  if (ranks == 1) return std::nullopt;
  if (!predicts_next_tokens(model))
    return fmt::format(
        "the matrices of {} cannot be divided: tensor parallelism is for gpt and decoders that predict tokens",
        words_for(model));
  const auto kind = family_kind(model.name);
  if (const auto refused = refuse_divided_adapters(recipe.fine_tune)) return refused;
  const int64_t heads = model.n_heads, keys = kind == "decoder" ? decoder::n_kv_heads(model) : heads;
  const auto works = [&](int64_t t) { return heads % t == 0 && (keys % t == 0 || t % keys == 0); };
  if (works(ranks)) {
    const int64_t hidden = kind == "decoder" ? decoder::hidden_dim(model) : gpt::hidden_dim(model);
    if (const auto refused = refuse_few("model.hidden_dim", hidden, ranks)) return refused;
    return refuse_few("model.vocab_size", model.vocab_size.value_or(ranks), ranks);
  }
  std::vector<std::string> sizes;
  for (int64_t t = 1; t <= heads; ++t)
    if (works(t)) sizes.push_back(std::to_string(t));
  return fmt::format("{} ranks cannot share {} heads with {} key heads; sizes that work: {}", ranks, heads, keys,
                     join(sizes, ", "));
}

std::optional<std::string> refuse_context(const Recipe& recipe, int ranks, ContextForm form, int tensor_ranks) {
  const auto& model = recipe.model;
  if (ranks == 1) return std::nullopt;
  if (!predicts_next_tokens(model))
    return fmt::format(
        "the tokens of {} cannot be divided: context parallelism is for gpt and decoders that predict tokens",
        words_for(model));
  const int64_t heads = model.n_heads, both = int64_t{ranks} * tensor_ranks;
  if (form != ContextForm::ulysses || heads % both == 0) return std::nullopt;
  std::vector<std::string> sizes;
  for (int64_t c = 1; c * tensor_ranks <= heads; ++c)
    if (heads % (c * tensor_ranks) == 0) sizes.push_back(std::to_string(c));
  const auto of_tensor = tensor_ranks > 1 ? fmt::format(" that {} tensor ranks have divided", tensor_ranks) : "";
  return fmt::format("{} ranks cannot share {} heads{}, as the form \"ulysses\" does; sizes that work: {}", ranks,
                     heads, of_tensor, join(sizes, ", "));
}

std::optional<std::string> refuse_stages(const Recipe& recipe) {
  if (predicts_next_tokens(recipe.model)) return std::nullopt;
  return fmt::format(
      "the blocks of {} cannot be divided into stages: pipelines are for gpt and decoders that predict tokens",
      words_for(recipe.model));
}

}  // namespace runner
