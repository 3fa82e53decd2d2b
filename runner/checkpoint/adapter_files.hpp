// Adapters in the files of PEFT (peft/utils/save_and_load.py): adapter_config.json and adapter_model.safetensors. Torch-free.
//
// PEFT has one adapter for each module of transformers. If such a module is several of our matrices (the projections of Phi-3 and
// GPT-NeoX), their adapters are written as one of a larger rank, whose B has zeros elsewhere. The result is the same.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// adapter_config.json of PEFT (peft/tuners/lora/config.py), read and compared with a recipe.
class AdapterConfig {
 public:
  /// Reads the file in the folder. Throws Error(usage) if there is none or it is not a JSON object.
  explicit AdapterConfig(const fs::path& folder);

  /// Throws Error(usage) if the adapter is not a plain LoRA or DoRA, or if its rank or factor differ from the recipe's. A note names
  /// keys that are not known.
  void check(const Recipe::FineTune& fine_tune) const;

  /// The problem if rank_pattern and alpha_pattern give the module another factor than the recipe; otherwise empty. A pattern is the end
  /// of a module's name; regular expressions of PEFT are not read.
  std::string other_factor(const std::string& module, const Recipe::FineTune& fine_tune) const;

  /// The settings that decide which modules the adapter has, for messages: " (adapter_config.json has layers_to_transform = [0])".
  std::string choices() const;

 private:
  void check_keys() const;
  void check_patterns() const;
  bool has(const std::string& key) const;
  template <typename T>
  T get(const char* key, T otherwise) const;

  fs::path path_;
  nlohmann::json values_;
};

/// The prefix of transformers' names in PEFT's files.
inline const std::string peft_prefix = "base_model.model.";

/// The adapter in a folder. The constructor compares it with the recipe and the spec (with adapters), and throws Error(usage) if
/// rank, factor, targets or shapes differ.
class AdapterFolder {
 public:
  AdapterFolder(const fs::path& folder, const Recipe& recipe, const ModelSpec& spec);
  /// Whether the folder has the parameter: a matrix of an adapter, or one of a module that is trained completely.
  bool has(size_t slot) const { return slot < values_.size() && !values_[slot].empty(); }
  /// Elements [offset, offset + out.size()) of the parameter, in our layout.
  void read(size_t slot, int64_t offset, std::span<float> out) const;

 private:
  std::vector<std::vector<float>> values_;  ///< by slot
};

/// Writes the two files, in fp32, to a folder that appears complete or not at all. `spec` has adapters, and `read` reads its
/// parameters. Throws Error as export_weights does.
void export_adapter(const fs::path& folder, const Recipe& recipe, const ModelSpec& spec, const ParameterReader& read);

/// Reads the parameters of the base model with the adapters added: W + scale * B A, for DoRA with rows of the trained lengths. `read`
/// reads those of `spec`. Keeps the adapter of
/// the matrix that was read last in memory.
ParameterReader merged_reader(const ModelSpec& spec, const ModelSpec& base, ParameterReader read);

/// A digest of the weights that training starts from, for comparing two folders: the files' sizes, headers, and their first and last
/// MiB. Reading it takes milliseconds.
std::string base_digest(const fs::path& folder);

}  // namespace runner
