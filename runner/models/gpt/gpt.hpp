// The torch-free part of the gpt family: its spec and its Hugging Face format (GPT2LMHeadModel).
#pragma once
#include "runner/models/models.hpp"

namespace runner::gpt {

int64_t hidden_dim(const Recipe::Model& model);
/// The feed-forward of a layer, with its norm and its residual.
BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer, const TensorDivision& division = {});
ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context);
nlohmann::json settings(const Recipe::Model& model);

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name);
bool hf_ignorable(const Recipe::Model& model, const std::string& name);
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner::gpt
