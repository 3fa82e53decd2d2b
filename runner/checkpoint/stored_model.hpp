// A model as it is stored, ready to be loaded: in a Hugging Face folder (or GGUF file), or in a checkpoint of a run. Torch-free.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/files.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// Where a model is. Either a Hugging Face folder, which may have an adapter of PEFT only, or a run's folder with one of its checkpoints.
struct ModelPlace {
  std::string folder = {};
  std::string run_dir = {}, checkpoint = {};
  std::string name = {};  ///< for messages and records: the path as given, or the run
  std::string base = {};  ///< of an adapter's folder: the folder of its base model; empty: adapter_config.json names it
  int64_t step = 0;       ///< of the checkpoint
  bool of_run() const { return !checkpoint.empty(); }
};

struct StoredModel {
  /// [model] with vocab_size; [data] with the tokenizer. Of a run, its resolved recipe.
  Recipe recipe = {};
  ModelSpec spec = {};                ///< without adapters; those of a checkpoint are merged into the parameters
  std::string dtype = {};             ///< of most stored weights: F32, BF16, F16 or F64
  std::string tokenizer_digest = {};  ///< Tokenizer::hash() of the training; empty: not known
  fs::path folder = {};  ///< with the tokenizer, generation_config.json and chat template of the model; may be empty
  /// Dataset::learned() of the training data, if the model predicts labels or numbers; otherwise null.
  nlohmann::json learned = nullptr;
  ParameterReader read = {};  ///< by the index of a parameter in spec.stored()
  /// Whether there is such a parameter. Folders may lack a head: Hugging Face's bare models have none.
  std::function<bool(size_t slot)> has = {};
  /// The bytes of a parameter in a mapped file, as HfSource::stored(). They exist as long as this function.
  std::function<HfSource::Stored(size_t slot)> stored = {};
};

/// The copy of the tokenizer that a run has trained (data.tokenizer = "sentencepiece"), in its folder.
inline constexpr const char* kept_tokenizer = "tokenizer.model";
/// Names the kept tokenizer instead of training one again, if the run has one.
void use_kept_tokenizer(Recipe::Data& data, const fs::path& run_dir);

/// Sets Data::trained_tokenizer for a run that continues: its tokenizer is not trained again, whatever its data are now.
void keep_trained_tokenizer(Recipe::Data& data, const fs::path& run_dir);

/// Opens the model; data are read later. Throws Error(usage) or Error(environment) with the path.
StoredModel open_stored_model(const ModelPlace& place);

/// The place that a path names: a folder with config.json or adapter_config.json, a checkpoint's folder, or the folder
/// of a run (its newest good checkpoint). Throws Error(usage) if it is none of them. Empty if there is no folder of
/// that name.
std::optional<ModelPlace> place_at(const fs::path& path);

/// The checkpoint of a run that its attempts have not given up.
ModelPlace place_of_run(const std::string& run, const fs::path& run_dir, const Attempts& attempts);

/// Fills in train.loss and [data] from config.json and, for images, preprocessor_config.json. Returns what data sets call learned
/// (Dataset::learned()). Throws Error(usage) with the folder if it does not say how to read inputs.
nlohmann::json take_label_folder(const fs::path& folder, const nlohmann::json& config, Recipe& recipe);

/// The entries of config.json that take_label_folder() reads. `learned`: of the training data.
nlohmann::json label_folder_config(const Recipe& recipe, const nlohmann::json& learned);

}  // namespace runner
