// Weights and tokens from closed formulas. tests/models/make_reference.py uses the same formulas, so losses can be
// compared without files of weights.
#pragma once
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner::testing {

inline uint32_t hash32(uint32_t h) {
  for (int round = 0; round < 2; ++round) h = (h ^ (h >> 16)) * 0x45d9f3bu;
  return h ^ (h >> 16);
}

/// Key of a matrix: embedding.tokens 0, embedding.positions 1, head 2, embedding.types 3, head.transform 4. In block l:
/// 100 (l + 1) + index of the matrix in the block.
inline uint32_t hashed_key(const std::string& name) {
  if (name == "embedding.tokens.weight") return 0;
  if (name == "embedding.positions.weight") return 1;
  if (name == "head.weight") return 2;
  if (name == "embedding.types.weight") return 3;
  if (name == "head.transform.weight") return 4;
  static const std::vector<std::vector<std::string>> places = {
      {".attention.qkv.weight", ".attention.out.weight", ".mlp.up.weight", ".mlp.down.weight"},
      {".attention.wq.weight", ".attention.wk.weight", ".attention.wv.weight", ".attention.wo.weight", ".mlp.w1.weight",
       ".mlp.w3.weight", ".mlp.w2.weight"}};
  for (const auto& family : places)
    for (size_t place = 0; place < family.size(); ++place)
      if (name.starts_with("blocks.") && name.ends_with(family[place]))
        return static_cast<uint32_t>(100 * (std::stoul(name.substr(7)) + 1) + place);
  throw std::logic_error("no hashed key for " + name);
}

/// Elements [offset, offset + count) of a parameter. Norms are 1, biases are 0, matrices are uniform with standard
/// deviation 0.02.
inline std::vector<float> hashed_values(const ParameterSpec& parameter, int64_t offset, int64_t count) {
  if (parameter.shape.size() == 1)
    return std::vector<float>(static_cast<size_t>(count), parameter.init.kind == Init::Kind::ones ? 1.0f : 0.0f);
  uint32_t start = hash32(hashed_key(parameter.name) + 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = hash32(static_cast<uint32_t>(offset + i) + start);
    values[static_cast<size_t>(i)] = static_cast<float>((h / 4294967296.0 - 0.5) * (2 * 0.02 * std::sqrt(3.0)));
  }
  return values;
}

inline std::vector<float> hashed_values(const ParameterSpec& parameter) {
  return hashed_values(parameter, 0, parameter.numel());
}

/// Token i of the data, also for a tensor of i.
template <typename Index>
Index hashed_token(const Index& i, int64_t vocab) {
  return (7 * i + i * i % 13) % vocab;
}

struct HashedBatch {
  std::vector<int64_t> inputs, targets;
};
/// Sample k has the tokens [k T, k T + T]. Step s uses the samples from s * sequences on, as with data.shuffle = false.
inline HashedBatch hashed_batch(int64_t step, int64_t sequences, int64_t seq_len, int64_t vocab) {
  HashedBatch batch;
  for (int64_t i = step * sequences * seq_len; i < (step + 1) * sequences * seq_len; ++i) {
    batch.inputs.push_back(hashed_token(i, vocab));
    batch.targets.push_back(hashed_token(i + 1, vocab));
  }
  return batch;
}

/// A stored table of tests/models/reference: PyTorch's losses of one model over 20 AdamW steps.
struct ReferenceRun {
  Recipe::Model model;
  int64_t vocab_size = 0, seq_len = 0, sequences = 0;  ///< sequences: per step
  double lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, eps = 0;
  std::vector<double> losses;
};

inline ReferenceRun load_reference(const std::string& source_dir, const std::string& name) {
  std::ifstream in(source_dir + "/tests/models/reference/" + name + ".json");
  if (!in) throw std::runtime_error("no reference table " + name);
  auto json = nlohmann::json::parse(in);
  ReferenceRun run;
  const auto& model = json.at("model");
  run.model.name = model.at("name");
  run.model.n_layers = model.at("n_layers");
  run.model.dim = model.at("dim");
  run.model.n_heads = model.at("n_heads");
  run.model.max_seq_len = model.at("max_seq_len");
  run.model.vocab_size = model.at("vocab_size").get<int64_t>();
  run.model.tie_embeddings = model.at("tie_embeddings");
  run.model.norm_eps = model.at("norm_eps");
  if (model.contains("activation")) run.model.activation = model.at("activation").get<std::string>();
  if (model.contains("n_kv_heads")) run.model.n_kv_heads = model.at("n_kv_heads").get<int64_t>();
  if (model.contains("hidden_dim")) run.model.hidden_dim = model.at("hidden_dim").get<int64_t>();
  run.model.rope_theta = model.value("rope_theta", run.model.rope_theta);
  if (model.contains("rope_scaling")) {
    const auto& scaling = model.at("rope_scaling");
    run.model.rope_scaling = {scaling.at("factor"), scaling.at("low_freq_factor"), scaling.at("high_freq_factor"),
                              scaling.at("original_max_position_embeddings")};
  }
  run.vocab_size = *run.model.vocab_size;
  run.seq_len = json.at("data").at("seq_len");
  run.sequences = json.at("data").at("sequences");
  const auto& optimizer = json.at("optimizer");
  run.lr = optimizer.at("lr");
  run.weight_decay = optimizer.at("weight_decay");
  run.beta1 = optimizer.at("betas").at(0);
  run.beta2 = optimizer.at("betas").at(1);
  run.eps = optimizer.at("eps");
  run.losses = json.at("losses").get<std::vector<double>>();
  return run;
}

}  // namespace runner::testing
