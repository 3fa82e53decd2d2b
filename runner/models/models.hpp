// Model families by name: from `[model]` to a torch-free spec. module.hpp builds the module from the same spec.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Valid values of `model.name`.
const std::vector<std::string>& model_families();

/// The content of a row of tokens: one sequence, or several that do not see each other (packed_fields() of token_batch.hpp). For models
/// with model.num_labels: a text and padding, or two texts and padding (text_fields()); one_sequence means `text`.
enum class RowKind { one_sequence, packed, text, text_pair };

/// Blocks "embedding", "blocks.0" ... "blocks.N-1", "head", with FLOPs at sequence length
/// `seq_len`. `vocab_size` is model.vocab_size, or the tokenizer's if the recipe does not set it. `division`: the parameters and all
/// numbers are those of one rank of a tensor axis, for which refuse_division() has no objection. `context`: the numbers per token are
/// those of one rank of a context axis, for which refuse_context() has no objection, and `seq_len` is that of complete rows. Throws
/// Error(usage) for contradicting values (config has checked some before).
///
/// FLOPs include matrix products only, count a multiply-add as 2, and count attention over all T x T scores although
/// half of them are masked, like PyTorch's FlopCounterMode.
ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len,
                    RowKind rows = RowKind::one_sequence, const TensorDivision& division = {},
                    const ContextDivision& context = {});
/// The spec of a recipe's model, with rows as its data have, and changed as [fine_tune] says (adapters.hpp).
ModelSpec make_spec(const Recipe& recipe, int64_t vocab_size, int64_t seq_len, const TensorDivision& division = {},
                    const ContextDivision& context = {});
/// Why so many ranks cannot share the recipe's matrices, with the nearest number that can; nullopt if they can.
std::optional<std::string> refuse_division(const Recipe& recipe, int ranks);
/// Why so many ranks cannot share the tokens of rows, if each of `tensor_ranks` others has a part of the matrices, with what can;
/// nullopt if they can.
std::optional<std::string> refuse_context(const Recipe& recipe, int ranks, ContextForm form, int tensor_ranks = 1);
/// Why the blocks of the recipe's model cannot be divided among the ranks of a pipeline; nullopt if they can.
std::optional<std::string> refuse_stages(const Recipe& recipe);
/// The spec of one rank, without the changes of [fine_tune].
ModelSpec make_base_spec(const Recipe& recipe, int64_t vocab_size, int64_t seq_len);

/// The names of the parameters, for messages. Of the transformer layers, only those of the first are included.
std::vector<std::string> parameter_names(const ModelSpec& model);

/// The settings that determine the model's tensors and its results, {"model.n_layers": 2, ...}, with derived values
/// filled in and an unset value as null. Dropout and the initial weights are not among them: they may change while a
/// model is trained.
nlohmann::json model_settings(const Recipe::Model& model, int64_t vocab_size);

/// Rows of a tensor in a file that contains several parameters: `groups` groups of `count` rows, which begin every `stride`
/// rows from `first` on.
struct HfRows {
  int64_t first = 0, count = 0, stride = 0, groups = 1;
  int64_t all = 0;  ///< rows of the tensor in the file
};

/// Name and layout of a parameter in a Hugging Face checkpoint of the family.
struct HfTensor {
  std::string name;  ///< e.g. "transformer.h.0.attn.c_attn.weight", as export writes it
  /// Other names: in a checkpoint of the bare model, without "transformer." or "model."; in old files.
  std::vector<std::string> aliases = {};
  bool transposed = false;  ///< stored as [in, out], by GPT-2's Conv1D
  /// A part of a head, which a checkpoint of the bare model does not have. Then the whole head starts from random values.
  bool replaceable = false;
  std::optional<HfRows> rows = {};  ///< the parameter is a part of the tensor, as in Phi-3 and GPT-NeoX
};
/// The tensors of the parameters of spec.stored(), in that order.
std::vector<HfTensor> hf_names(const Recipe::Model& model, const ModelSpec& spec);
/// Tensors in a Hugging Face folder that are not parameters (buffers, the tied head).
bool hf_ignorable(const Recipe::Model& model, const std::string& tensor_name);
/// config.json <-> [model]. Throws Error(usage) for an architecture or option that the target does not support.
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner
