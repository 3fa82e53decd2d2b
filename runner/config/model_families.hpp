// The families of models by name, the defaults of each, and what they predict. A family of decoders is a row of values for the options
// of one specification (runner/models/decoder).
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// The values of model.name, without "plugin", whose models are described by a library (runner/models/plugin).
const std::vector<std::string>& model_family_names();

/// The values of model.name for language models.
std::vector<std::string> language_model_names();

/// The kind of a family: "gpt", "decoder", "encoder", "mlp", "vit", "resnet" or "plugin". Families of a kind have the same options. A
/// name that is not a family is a decoder's.
std::string family_kind(const std::string& name);

/// Whether the model reads tokens. The others have a label or numbers as the target of each row.
bool is_language_model(const std::string& name);

/// Whether the recipe's model predicts tokens, and not labels or numbers of rows or texts.
bool predicts_tokens(const Recipe& recipe);
/// Whether a model that reads tokens predicts a label or numbers of each text: model.num_labels is set.
bool labels_texts(const Recipe::Model& model);

/// The size of the vocabulary of models that read tokens, and model.num_labels of the others.
std::optional<int64_t> outputs_of(const Recipe::Model& model);

/// [model] with a family's name and defaults, which are those of Hugging Face's configuration class except sizes. A name
/// that is not a family has the defaults of gpt.
Recipe::Model family_defaults(const std::string& name);

/// model.activation, or the family's.
std::string activation_of(const Recipe::Model& model);

/// Whether the embeddings of a family are multiplied by sqrt(dim) unless model.embedding_multiplier is set.
bool scales_embeddings(const std::string& name);

// The metrics that validation measures in addition to val_loss, for models that predict labels or numbers.

/// The metrics of all tasks: val_accuracy, val_top5_accuracy, val_f1, val_auc, val_mae, val_r2.
const std::vector<std::string>& all_validation_metrics();
/// The metrics for train.loss and model.num_labels; none for language models. All that are possible while these are not known.
std::vector<std::string> validation_metrics(const Recipe& recipe);

}  // namespace runner
