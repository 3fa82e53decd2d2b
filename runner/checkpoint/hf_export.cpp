// Exports weights for other programs: streams tensors into shards in a temporary folder, which is then renamed.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runner/base/error.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner {

namespace {

constexpr int64_t chunk_elements = 1 << 20;

/// A tensor of the exported file, and the parameters in it. Without parameters it is a number of batches, 0.
struct Output {
  struct Part {
    size_t slot = 0;
    std::optional<HfRows> rows = {};
  };
  TensorInfo info;
  bool transposed = false;
  std::vector<Part> parts = {};
};

std::vector<Output> outputs(const Recipe::Model& model, const ModelSpec& spec, const WeightsFolder& options) {
  std::vector<Output> list;
  std::vector<HfTensor> names;
  if (options.naming == WeightsFolder::Naming::hugging_face) names = hf_names(model, spec);
  auto parameters = spec.stored();
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    HfTensor name = names.empty() ? HfTensor{parameters[slot]->name, {}} : names[slot];
    auto shape = parameters[slot]->shape;
    if (name.transposed) std::swap(shape.at(0), shape.at(1));
    if (name.rows) shape[0] = name.rows->all;
    auto found = std::ranges::find(list, name.name, [](const Output& output) { return output.info.name; });
    if (found == list.end()) found = list.insert(found, {{name.name, options.dtype, shape}, name.transposed});
    found->parts.push_back({slot, name.rows});
  }
  const std::string variance = "running_var", batches = "num_batches_tracked";  // PyTorch's BatchNorm expects both
  for (const auto& name : names)
    if (name.name.ends_with(variance))
      list.push_back({{name.name.substr(0, name.name.size() - variance.size()) + batches, "I64", {}}});
  for (auto& output : list)  // in the order of the file's rows
    std::ranges::sort(output.parts, {}, [](const Output::Part& part) { return part.rows ? part.rows->first : 0; });
  return list;
}

/// Fills the shards one after another, in the order of the list. A tensor larger than `shard_bytes_max` gets its own
/// shard.
std::vector<std::vector<Output>> cut_into_shards(std::vector<Output> list, int64_t shard_bytes_max) {
  std::vector<std::vector<Output>> shards(1);
  int64_t filled = 0;
  for (auto& output : list) {
    int64_t bytes = output.info.numel() * dtype_bytes(output.info.dtype);
    if (filled + bytes > shard_bytes_max && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(output));
  }
  return shards;
}

class TensorStream {
 public:
  TensorStream(SafetensorsWriter& writer, const ParameterReader& read) : writer_(writer), read_(read) {}

  void write(const Output& output) {
    if (output.parts.empty()) {
      constexpr std::array<int64_t, 1> batches{0};
      return writer_.write(std::as_bytes(std::span(batches)));
    }
    const auto& first = output.parts.front();
    if (!first.rows) return write(output, first.slot, 0, output.info.numel());
    const int64_t columns = output.info.numel() / output.info.shape[0];
    for (int64_t group = 0; group < first.rows->groups; ++group)
      for (const auto& part : output.parts)
        write(output, part.slot, group * part.rows->count * columns, part.rows->count * columns);
  }

 private:
  /// Writes `numel` elements of a parameter from `begin` on.
  void write(const Output& output, size_t slot, int64_t begin, int64_t numel) {
    int64_t step = output.transposed ? numel : chunk_elements;
    for (int64_t offset = 0; offset < numel; offset += step) {
      values_.resize(static_cast<size_t>(std::min(step, numel - offset)));
      read_(slot, begin + offset, values_);
      if (output.transposed) transpose(output.info.shape[1], output.info.shape[0]);
      bytes_.resize(values_.size() * static_cast<size_t>(dtype_bytes(output.info.dtype)));
      if (!from_floats(output.info.dtype, values_, bytes_))
        throw environment_error("{} has values that {} cannot represent: export it as bf16 or f32", output.info.name,
                                output.info.dtype);
      writer_.write(bytes_);
    }
  }
  /// Transposes values_ from [rows, columns] to [columns, rows].
  void transpose(int64_t rows, int64_t columns) {
    transposed_.resize(values_.size());
    for (int64_t first = 0; first < rows; first += 64)
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t row = first; row < std::min(rows, first + 64); ++row)
          transposed_[static_cast<size_t>(column * rows + row)] = values_[static_cast<size_t>(row * columns + column)];
    std::swap(values_, transposed_);
  }

  SafetensorsWriter& writer_;
  const ParameterReader& read_;
  std::vector<float> values_, transposed_;
  std::vector<std::byte> bytes_;
};

void write_shards(const fs::path& folder, const std::vector<std::vector<Output>>& shards, const ParameterReader& read) {
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = shards.size() == 1 ? "model.safetensors"
                                          : fmt::format("model-{:05d}-of-{:05d}.safetensors", i + 1, shards.size());
    std::vector<TensorInfo> infos;
    for (const auto& output : shards[i]) {
      infos.push_back(output.info);
      weight_map[output.info.name] = name;
      total_bytes += output.info.numel() * dtype_bytes(output.info.dtype);
    }
    SafetensorsWriter writer(folder / name, std::move(infos),
                             {{"format", "pt"}});  // transformers rejects a file without this entry
    TensorStream stream(writer, read);
    for (const auto& output : shards[i]) stream.write(output);
    writer.finish();
  }
  nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(weight_map)}};
  if (shards.size() > 1) write_file_atomic(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::string torch_dtype(const std::string& dtype) {
  return dtype == "F16" ? "float16" : dtype == "BF16" ? "bfloat16" : "float32";
}

}  // namespace

fs::path hf_tokenizer_file(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (has_model_file(folder / name)) return folder / name;
  return {};
}

fs::path unused_tokenizer(const fs::path& folder, const Recipe::Data& data) {
  if (data.has_token_ids()) return {};
  const bool given = data.tokenizer != "bytes" && data.tokenizer != "sentencepiece" && fs::exists(data.tokenizer);
  const fs::path own = given ? tokenizer_file(data.tokenizer) : fs::path();
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (const auto file = folder / name; given && has_model_file(file) && has_model_file(own))
      if (file == own || read_model_file(file) == read_model_file(own)) return {};
  return hf_tokenizer_file(folder);
}

void take_companions(const fs::path& folder, WeightsFolder& options) {
  const auto config = read_hf_config(folder);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (auto found = config.find(key); found != config.end() && !found->is_null()) options.config_entries[key] = *found;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json"})
    if (has_model_file(folder / name)) options.companions.push_back(folder / name);
}

void write_export(const fs::path& folder, const std::function<void(const fs::path& temporary)>& write) {
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" names the same folder
  std::error_code ignored;
  if (fs::exists(target, ignored) && !(fs::is_directory(target, ignored) && fs::is_empty(target, ignored)))
    throw usage_error("{} exists and is not an empty folder", folder.string());
  fs::path temporary = target.parent_path() / fmt::format(".{}.{}.tmp", target.filename().string(), ::getpid());
  try {
    fs::create_directories(temporary);
    write(temporary);
    publish_directory(temporary, target);
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(temporary, ignored);
    throw environment_error("cannot write {}: {}", folder.string(), error.code().message());
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void export_weights(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec,
                    const ParameterReader& read, const WeightsFolder& options) {
  nlohmann::json config;
  if (options.naming == WeightsFolder::Naming::hugging_face) {
    config = hf_config(model, spec);
    config["torch_dtype"] = torch_dtype(options.dtype);
    config.update(options.config_entries);
  }
  write_export(folder, [&](const fs::path& temporary) {
    write_shards(temporary, cut_into_shards(outputs(model, spec, options), options.shard_bytes_max), read);
    if (!config.is_null()) write_file_atomic(temporary / "config.json", config.dump(2) + "\n");
    if (!options.preprocessor.is_null())
      write_file_atomic(temporary / "preprocessor_config.json", options.preprocessor.dump(2) + "\n");
    if (!options.tokenizer_config.is_null())
      write_file_atomic(temporary / "tokenizer_config.json", options.tokenizer_config.dump(2) + "\n");
    for (const auto& file : options.companions) write_file_atomic(temporary / file.filename(), read_model_file(file));
    for (const auto& [path, name] : options.tokenizer) write_file_atomic(temporary / name, read_model_file(path));
  });
}

}  // namespace runner
