// The torch-free part of the encoders, bert and roberta: their spec and their Hugging Face format (BertForMaskedLM,
// RobertaForMaskedLM; with model.num_labels BertForSequenceClassification, RobertaForSequenceClassification).
#pragma once
#include "runner/models/models.hpp"

namespace runner::encoder {

int64_t hidden_dim(const Recipe::Model& model);
/// Rows of the table of positions: the first `position_offset` of them are unused.
int64_t position_rows(const Recipe::Model& model);
ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context);
nlohmann::json settings(const Recipe::Model& model);

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name);
bool hf_ignorable(const Recipe::Model& model, const std::string& name);
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner::encoder
