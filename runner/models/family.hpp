// The interface of a model family for the registry in models.cpp.
#pragma once
#include <span>
#include <string>

#include "runner/models/models.hpp"

namespace runner {

/// A specification of models, which one or several values of model.name share.
struct Family {
  ModelSpec (*make_spec)(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                         const TensorDivision& division, const ContextDivision& context);
  /// The family's part of model_settings(), without "model.".
  nlohmann::json (*settings)(const Recipe::Model& model);
  HfTensor (*hf_tensor)(const Recipe::Model& model, const std::string& parameter);
  /// Whether a tensor of old checkpoint files is not needed.
  bool (*hf_ignorable)(const Recipe::Model& model, const std::string& name);
  Recipe::Model (*model_from_hf_config)(const nlohmann::json& config);
  nlohmann::json (*hf_config)(const Recipe::Model& model, const ModelSpec& spec);
};

/// A module's name in a spec, and that in Hugging Face's files.
struct ModuleName {
  const char *ours, *theirs;
};
/// The name of the module `ours` in the other list; "" if it has none.
inline std::string find_name(std::span<const ModuleName> names, const std::string& ours) {
  for (const auto& name : names)
    if (ours == name.ours) return name.theirs;
  return "";
}

extern const Family gpt_family;
extern const Family decoder_family;
extern const Family mlp_family;
extern const Family vit_family;
extern const Family resnet_family;
extern const Family plugin_family;
extern const Family encoder_family;

}  // namespace runner
