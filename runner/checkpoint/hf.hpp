// Reads and writes Hugging Face folders: config.json and model.safetensors, or an index and shards. A GGUF file is read as such a
// folder (pretrained/model_files.hpp). Parameters are read in runner's layout; exported folders can be opened by transformers'
// from_pretrained. Torch-free.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/safetensors.hpp"
#include "runner/models/models.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// A file with the weights of a pretrained model, under the names of Hugging Face: a safetensors or a GGUF file.
class WeightFile {
 public:
  virtual ~WeightFile() = default;
  virtual const fs::path& path() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  /// The dtypes that can be converted to floats, for messages.
  virtual std::vector<std::string> readable_dtypes() const = 0;
  /// Reads elements [offset, offset + out.size()). Thread-safe.
  virtual void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const = 0;
  /// The tensor's elements in the mapped file; empty if they are not stored as TensorInfo::dtype says.
  virtual std::span<const std::byte> mapped(const TensorInfo& /*tensor*/) const { return {}; }
};

/// Opens a file by its content and checks its header. Throws Error(usage) with the path and the fault, also for a
/// GGUF file of an unsupported architecture.
std::unique_ptr<WeightFile> open_weight_file(const fs::path& path);

/// The weights in a folder or GGUF file. The constructor compares names and shapes of all tensors with the model, and the settings
/// of config.json that shapes do not show (heads, activation, norm_eps, rotary settings, tied head). It throws
/// Error(usage) with a list of missing, unknown and misshapen tensors. Files are mapped, and their data is loaded only
/// on read().
class HfSource {
 public:
  /// A head of a task (ModelSpec::task) with another number of outputs, or none, is no mistake: has() is false for it.
  HfSource(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec);
  /// Whether the files have the parameter. They may lack a head (HfTensor::replaceable).
  bool has(size_t slot) const { return sources_.at(slot).tensor != nullptr; }
  /// The folder's head if it is not that of the model: "a head of 3 outputs", "no head". Otherwise empty.
  const std::string& other_head() const { return other_head_; }
  /// Reads elements [offset, offset + out.size()) of the flattened parameter in slot `slot` as float, in runner's
  /// layout: Conv1D weights of GPT-2 are transposed, and matrices that share a tensor are read from their rows. For a
  /// transposed parameter, only the file's pages with the needed columns are read. Thread-safe.
  void read(size_t slot, int64_t offset, std::span<float> out) const;
  /// The parameter's bytes in the mapped file, and their dtype. No bytes if the file has another layout than runner.
  struct Stored {
    std::string dtype;
    std::span<const std::byte> bytes = {};
  };
  Stored stored(size_t slot) const;

 private:
  struct Source {
    const WeightFile* file = nullptr;
    const TensorInfo* tensor = nullptr;
    bool transposed = false;
    std::optional<HfRows> rows = {};
  };
  static void read_rows(const Source& source, int64_t offset, std::span<float> out);
  std::vector<std::unique_ptr<WeightFile>> files_;
  std::vector<Source> sources_;  ///< by slot
  std::string other_head_;
};

/// Parses a file of a Hugging Face folder or GGUF file (pretrained/model_files.hpp). Throws Error(usage) with the path if it has no object.
nlohmann::json read_json_object(const fs::path& path);
/// Parses config.json of a Hugging Face folder or GGUF file. Throws Error(usage) with the path.
nlohmann::json read_hf_config(const fs::path& folder);
/// The safetensors files of a Hugging Face folder, or the GGUF file. Throws Error(usage) if there are none, or if one is missing.
std::vector<fs::path> hf_weight_files(const fs::path& folder);
/// [model] of a Hugging Face folder or GGUF file. Throws Error(usage) with the path.
Recipe::Model model_of_hf_folder(const fs::path& folder);

/// Reads a range of a parameter, as HfSource::read does.
using ParameterReader = std::function<void(size_t slot, int64_t offset, std::span<float> out)>;

/// Options of an exported folder. It contains model.safetensors, or model-00001-of-0000N.safetensors and
/// model.safetensors.index.json if the weights take more than `shard_bytes_max`.
struct WeightsFolder {
  enum class Naming {
    hugging_face,  ///< names, layout and config.json of transformers
    runner         ///< names and layout of runner, no config.json
  };
  Naming naming = Naming::hugging_face;
  std::string dtype = "F32";  ///< F32, BF16 or F16
  int64_t shard_bytes_max = 5'000'000'000;
  nlohmann::json config_entries =
      nlohmann::json::object();               ///< in addition to those of the model: bos_token_id, columns ...
  nlohmann::json preprocessor = nullptr;      ///< preprocessor_config.json of a model of images
  nlohmann::json tokenizer_config = nullptr;  ///< tokenizer_config.json, if it is not among the files below
  std::vector<fs::path> companions;           ///< files that are copied into the exported folder
  std::vector<Tokenizer::File> tokenizer;     ///< copied under their names
};

/// The file of a Hugging Face folder's tokenizer, of any kind; empty: there is none.
fs::path hf_tokenizer_file(const fs::path& folder);

/// The file of a Hugging Face folder's tokenizer if the data are encoded with another one; otherwise empty. Ids of
/// format "bin" count as encoded with the folder's tokenizer.
fs::path unused_tokenizer(const fs::path& folder, const Recipe::Data& data);

/// Adds to `options` what an export should take over from the folder that training started from: the ids of special
/// tokens (from config.json), and the files of the tokenizer and of generation.
void take_companions(const fs::path& folder, WeightsFolder& options);

/// `write` fills a temporary folder next to `folder`, which is then renamed: the folder appears complete or not at all. Throws
/// Error(usage) if `folder` exists and is not empty, and Error(environment) if the disk is full.
void write_export(const fs::path& folder, const std::function<void(const fs::path& temporary)>& write);

/// Writes the folder as write_export() does. Throws Error(environment) if a value does not fit into the dtype. A
/// transposed parameter is completely in memory while it is written; of others, only 2^20 elements are.
void export_weights(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec,
                    const ParameterReader& read, const WeightsFolder& options = {});

/// The output layer of a model that shares the embedding's weight. PEFT trains a copy of each module in modules_to_save, so a folder
/// with one of the two makes the other one keep the weight of the base (peft/utils/other.py, ModulesToSaveWrapper).
struct TiedHead {
  size_t slot = 0;             ///< of the embedding's weight
  std::string embedding = "";  ///< its tensor in Hugging Face's files
  std::string head =
      "";  ///< the output layer's where it has its own weight; empty: no such model of the family can be read
};

/// Unset: the model has no output layer of that kind.
std::optional<TiedHead> find_tied_head(const Recipe::Model& model, const ModelSpec& spec);

/// Why PEFT uses other weights in the output layer than in the embedding with the adapter in this folder; empty: it does not.
std::string difference_of_head(const fs::path& folder, const TiedHead& tied);

}  // namespace runner
