// The declarations that the parts of the vit family share.
#pragma once
#include "runner/models/models.hpp"

namespace runner::vit {

/// Values of an image, and tokens that it becomes: its patches and the class token.
int64_t pixels_of(const Recipe::Model& model);
int64_t tokens_of(const Recipe::Model& model);

/// The tensors and settings are those of Hugging Face's ViTForImageClassification.
HfTensor hf_tensor(const std::string& parameter);
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner::vit
