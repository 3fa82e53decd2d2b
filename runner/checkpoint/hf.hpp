// Hugging Face folders: config.json and model.safetensors (or an index and shards), read as parameters of a model in
// our layout, and written so that transformers' from_pretrained opens them. Torch-free.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/safetensors.hpp"
#include "runner/models/models.hpp"

namespace runner {

/// A folder's weights. The constructor compares config.json with the model where shapes cannot tell the difference
/// (heads, activation, norm_eps, rotary settings, tied head), and names and shapes of all tensors; throws Error(usage)
/// that lists what is missing, unknown or misshapen. Files are mapped: nothing is loaded before it is read.
class HfSource {
 public:
  HfSource(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec);
  /// Elements [offset, offset + out.size()) of the flattened parameter in slot `slot`, in our layout (GPT-2's Conv1D
  /// weights transposed), as float. A range of a transposed parameter touches the pages of that range of columns only.
  /// Thread-safe.
  void read(size_t slot, int64_t offset, std::span<float> out) const;

 private:
  struct Source {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    bool transposed = false;
  };
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Source> sources_;  ///< by slot
};

/// config.json of a Hugging Face folder, parsed. Throws Error(usage) naming the file.
nlohmann::json read_hf_config(const fs::path& folder);

/// Reads a range of a parameter, as HfSource::read does.
using ParameterReader = std::function<void(size_t slot, int64_t offset, std::span<float> out)>;

/// Weights in a folder: model.safetensors, or model-00001-of-0000N.safetensors and model.safetensors.index.json when
/// they take more than `shard_bytes_max`.
struct WeightsFolder {
  enum class Naming {
    hugging_face,  ///< names, layout and config.json of transformers
    runner         ///< our own names and layout, no config.json
  };
  Naming naming = Naming::hugging_face;
  std::string dtype = "F32";  ///< F32, BF16 or F16
  int64_t shard_bytes_max = 5'000'000'000;
  nlohmann::json token_ids = nlohmann::json::object();  ///< for config.json: bos_token_id, eos_token_id ...
  std::vector<fs::path> companions;                     ///< files of other folders that are copied beside the weights
};

/// What a Hugging Face folder has that no weights hold and that an export of a model trained from it should have again:
/// the ids of its special tokens, and the files of its tokenizer and of generation. Reads config.json.
void take_companions(const fs::path& folder, WeightsFolder& options);

/// Writes beside `folder` and renames: the folder appears complete or not at all. Throws Error(usage) when it exists
/// and is not empty, Error(environment) when a value does not fit into the dtype or the disk is full. At most one
/// transposed parameter is in memory at a time, of others a part.
void export_weights(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec,
                    const ParameterReader& read, const WeightsFolder& options = {});

}  // namespace runner
