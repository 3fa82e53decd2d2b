// Reading Hugging Face folders, and GGUF files as such folders; models whose output layer shares the weight of the embedding.
#include "runner/checkpoint/hf.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/config/model_families.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "runner/pretrained/gguf_model.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

namespace {

/// A setting for messages.
std::string setting_text(const nlohmann::json& value) {
  if (value.is_null()) return "unset";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_structured()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::vector<std::string> parts;
  for (const auto& [key, item] : value.items())
    parts.push_back(value.is_object() ? key + " = " + setting_text(item) : setting_text(item));
  return fmt::format(fmt::runtime(value.is_object() ? "{{{}}}" : "[{}]"), join(parts, ", "));
}

/// Compares the settings. Throws Error(usage) with all differences.
void compare_config(const fs::path& folder, const Recipe::Model& model) {
  const auto theirs = model_of_hf_folder(folder);
  const auto* place = is_gguf(folder) ? "the file" : "config.json";
  std::vector<std::string> differences;
  auto compare = [&](const std::string& key, const nlohmann::json& here, const nlohmann::json& there) {
    if (here != there)
      differences.push_back(
          fmt::format("model.{} = {} in the recipe, {} in {}", key, setting_text(here), setting_text(there), place));
  };
  compare("name", model.name, theirs.name);
  if (differences.empty()) {
    const auto here = model_settings(model, 0), there = model_settings(theirs, 0);
    constexpr const char* first[] = {"n_layers", "dim",        "n_heads",        "n_kv_heads", "hidden_dim",
                                     "norm_eps", "activation", "tie_embeddings", "rope_theta", "rope_scaling"};
    // The shapes of tensors show these. head_dim also follows from other settings.
    // Another head is replaced.
    std::set<std::string> others = {"max_seq_len", "bias", "vocab_size", "head_dim", "num_labels", "labels"};
    for (const char* key : first)
      if (const auto dotted = std::string("model.") + key; here.contains(dotted)) {
        compare(key, here[dotted], there[dotted]);
        others.insert(key);
      }
    for (const auto& [dotted, value] : here.items())
      if (const auto key = dotted.substr(6); !others.contains(key)) compare(key, value, there.at(dotted));
  }
  if (!differences.empty())
    throw usage_error("{} contains a different model:\n  {}", folder.string(), join(differences, "\n  "));
}

/// Whether the class is a model without a head, such as MistralModel.
bool is_bare(const nlohmann::json& config) {
  const auto classes = config.value("architectures", nlohmann::json());
  return classes.is_array() && !classes.empty() && classes[0].is_string() &&
         classes[0].get<std::string>().ends_with("Model") && !classes[0].get<std::string>().ends_with("HeadModel");
}

std::vector<int64_t> stored_shape(const ParameterSpec& parameter, const HfTensor& name) {
  if (name.rows) {
    auto shape = parameter.shape;
    shape[0] = name.rows->all;
    return shape;
  }
  return name.transposed ? std::vector<int64_t>(parameter.shape.rbegin(), parameter.shape.rend()) : parameter.shape;
}

/// A tensor, and the file that it is in.
struct StoredTensor {
  const WeightFile& file;
  const TensorInfo& tensor;

  /// The dtypes that can be read from the file; empty if the tensor has one of them.
  std::vector<std::string> needed_dtypes() const {
    auto dtypes = file.readable_dtypes();
    if (std::ranges::find(dtypes, tensor.dtype) != dtypes.end()) dtypes.clear();
    return dtypes;
  }
};

bool same_values(const StoredTensor& stored, const StoredTensor& other) {
  const auto& tensor = stored.tensor;
  if (tensor.shape != other.tensor.shape) return false;
  std::vector<float> values(1 << 16), others(values.size());
  for (int64_t offset = 0; offset < tensor.numel(); offset += std::ssize(values)) {
    const auto count = static_cast<size_t>(std::min<int64_t>(std::ssize(values), tensor.numel() - offset));
    stored.file.read(tensor, offset, std::span(values).first(count));
    other.file.read(other.tensor, offset, std::span(others).first(count));
    if (std::memcmp(values.data(), others.data(), count * sizeof(float)) != 0) return false;
  }
  return true;
}

/// The output layers that hf_ignorable() lets a tied model have.
constexpr const char* tied_heads[] = {"lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight",
                                      "lm_head.decoder.weight"};

/// Throws Error(usage) if the output layer `head` does not have the values of the embedding that it is tied to.
void check_head(const fs::path& folder, const TiedHead& tied, const StoredTensor& embedding, const StoredTensor& head) {
  if (const auto dtypes = head.needed_dtypes(); !dtypes.empty())
    throw usage_error("{}: {} is {} instead of {}", folder.string(), head.tensor.name, head.tensor.dtype,
                      join_or(dtypes));
  if (same_values(embedding, head)) return;
  throw usage_error(
      "{}: `{}` differs from `{}`, and config.json says that they are one weight (tie_word_embeddings = true). {}",
      folder.string(), head.tensor.name, embedding.tensor.name,
      tied.head.empty() ? "This family always ties them, so the first one must be removed from the file"
                        : "Set tie_word_embeddings = false there to use both, and model.tie_embeddings = false if the "
                          "recipe has it; or remove the first one from the file");
}

void list(std::string& text, const char* title, const std::vector<std::string>& items) {
  if (!items.empty()) text += fmt::format("\n  {}: {}", title, first_ten(items));
}

class SafetensorsWeights final : public WeightFile {
 public:
  explicit SafetensorsWeights(const fs::path& path) : file_(path) {}
  const fs::path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return file_.tensors(); }
  std::vector<std::string> readable_dtypes() const override { return {"F32", "BF16", "F16", "F64"}; }
  void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const override {
    const auto bytes = static_cast<size_t>(dtype_bytes(tensor.dtype));
    to_floats(tensor.dtype, file_.data(tensor).subspan(static_cast<size_t>(offset) * bytes, out.size() * bytes), out);
  }
  std::span<const std::byte> mapped(const TensorInfo& tensor) const override { return file_.data(tensor); }

 private:
  SafetensorsFile file_;
};

class GgufWeights final : public WeightFile {
 public:
  explicit GgufWeights(const fs::path& path) : file_(path) {
    for (const auto& tensor : file_.tensors()) {
      if (tensor.name == "rope_freqs.weight") continue;  // read as a setting
      auto place = gguf_place(file_, tensor.name);
      // `begin` and `end` are not bytes here: `begin` is the index in sources_.
      tensors_.push_back({place.name, tensor.type->name, tensor.shape, sources_.size(), sources_.size()});
      sources_.push_back({&tensor, std::move(place)});
    }
  }
  const fs::path& path() const override { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  std::vector<std::string> readable_dtypes() const override { return readable_gguf_types(); }
  void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const override {
    const auto& [source, place] = sources_.at(tensor.begin);
    read_gguf(file_, *source, place, offset, out);
  }

 private:
  GgufFile file_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<const GgufTensor*, GgufPlace>> sources_;
};

}  // namespace

nlohmann::json read_json_object(const fs::path& path) {
  auto parsed = foreign_json(read_model_file(path));
  if (!parsed.is_object()) throw usage_error("{} is not a JSON object", path.string());
  return parsed;
}

std::vector<fs::path> hf_weight_files(const fs::path& folder) {
  if (is_gguf(folder)) return {folder};
  fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (fs::exists(single)) return {single};
  if (!fs::exists(index)) {
    bool pickle = fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json");
    throw usage_error("{} has neither model.safetensors nor model.safetensors.index.json{}", folder.string(),
                      pickle ? "; pytorch_model.bin is a pickle, which is not read: save it with "
                               "save_pretrained(safe_serialization=True)"
                             : "");
  }
  auto parsed = read_json_object(index);
  auto map = parsed.find("weight_map");
  if (map == parsed.end() || !map->is_object()) throw usage_error("{} has no weight_map", index.string());
  std::set<fs::path> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>())
      throw usage_error("{}: `{}` is in {}, which is not a file in the same folder", index.string(),
                        shortened_text(tensor), shortened_json(file));
    files.insert(folder / file.get<std::string>());
  }
  for (const auto& file : files)
    if (!fs::exists(file))
      throw usage_error("{} is missing, but {} names it", file.string(), index.filename().string());
  return {files.begin(), files.end()};
}

/// For "ORGANISATION/MODEL" where the organisation is no folder, either.
static std::string hub_hint(const fs::path& folder) {
  if (fs::exists(folder) || fs::exists(folder.parent_path())) return "";
  const auto name = (folder.parent_path().filename() / folder.filename()).string();
  return fmt::format(
      "; {0} looks like a name of the Hugging Face Hub, from which nothing is downloaded here: hf download {0} "
      "--local-dir DIR, and name DIR",
      name);
}

nlohmann::json read_hf_config(const fs::path& folder) {
  if (fs::is_regular_file(folder) && !is_gguf(folder))
    throw usage_error("{} is neither a Hugging Face folder nor a GGUF file", folder.string());
  if (!is_model_folder(folder)) {
    const bool file = folder.extension() == ".gguf";
    const auto hint = setup_hint(folder);
    throw usage_error("{}: there is no such {}{}", folder.string(), file ? "file" : "folder",
                      hint.empty() && !file ? hub_hint(folder) : hint);
  }
  if (!has_model_file(folder / "config.json")) throw usage_error("{} has no config.json", folder.string());
  return read_json_object(folder / "config.json");
}

Recipe::Model model_of_hf_folder(const fs::path& folder) {
  const auto config = read_hf_config(folder);
  try {
    return model_from_hf_config(config);
  } catch (const Error& error) {
    throw usage_error("{}: {}", folder.string(), error.what());
  }
}

HfSource::HfSource(const fs::path& folder, const Recipe::Model& model, const ModelSpec& spec) {
  compare_config(folder, model);
  std::map<std::string, Source> stored;
  for (const auto& path : hf_weight_files(folder)) {
    const auto& file = files_.emplace_back(open_weight_file(path));
    for (const auto& tensor : file->tensors()) {
      auto [twin, added] = stored.try_emplace(tensor.name, Source{file.get(), &tensor});
      if (!added)
        throw usage_error("`{}` is in {} and in {}", shortened_text(tensor.name), twin->second.file->path().string(),
                          path.string());
    }
  }

  std::vector<std::string> missing, misshapen, unknown;
  std::set<std::string> used;
  auto names = hf_names(model, spec);
  auto parameters = spec.stored();
  const auto is_stored = [&](const HfTensor& tensor) {
    return stored.contains(tensor.name) ||
           std::ranges::any_of(tensor.aliases, [&](const std::string& alias) { return stored.contains(alias); });
  };
  const bool no_head =
      std::ranges::none_of(names, [&](const HfTensor& tensor) { return tensor.replaceable && is_stored(tensor); });
  const bool bare = is_bare(read_hf_config(folder));
  const auto tied = find_tied_head(model, spec);
  for (size_t slot = 0; slot < names.size(); ++slot) {
    auto found = stored.find(names[slot].name);
    for (const auto& alias : names[slot].aliases)
      if (found == stored.end()) found = stored.find(alias);
    if (found == stored.end() && tied && tied->slot == slot && !tied->head.empty()) found = stored.find(tied->head);
    if (found == stored.end() && names[slot].replaceable && no_head) {
      sources_.emplace_back();
      continue;
    }
    const bool of_task_head =
        spec.task && (parameters[slot]->name == "head.weight" || parameters[slot]->name == "head.bias");
    if (found == stored.end() && bare && parameters[slot]->name == "head.weight" && !spec.task) {
      sources_.emplace_back();
      continue;
    }
    if (found == stored.end() && of_task_head) {
      other_head_ = "no head";
      sources_.emplace_back();
      continue;
    }
    if (found == stored.end()) {
      missing.push_back(names[slot].name);
      sources_.emplace_back();
      continue;
    }
    const StoredTensor there{*found->second.file, *found->second.tensor};
    const auto& tensor = there.tensor;
    auto shape = stored_shape(*parameters[slot], names[slot]);
    if (of_task_head && tensor.shape.size() == shape.size() && tensor.shape[0] != shape[0]) {
      other_head_ = fmt::format("a head of {}", counted(tensor.shape[0], "output"));
      sources_.emplace_back();
      used.insert(found->first);
      continue;
    }
    if (tensor.shape != shape)
      misshapen.push_back(fmt::format("{} is [{}] instead of [{}]", tensor.name,
                                      shortened_text(fmt::format("{}", fmt::join(tensor.shape, ", "))),
                                      fmt::join(shape, ", ")));
    else if (const auto dtypes = there.needed_dtypes(); !dtypes.empty())
      misshapen.push_back(fmt::format("{} is {} instead of {}", tensor.name, tensor.dtype, join_or(dtypes)));
    sources_.push_back({found->second.file, found->second.tensor, names[slot].transposed, names[slot].rows});
    used.insert(found->first);
  }
  for (const auto& [name, source] : stored)
    if (!used.contains(name) && !hf_ignorable(model, name)) unknown.push_back(shortened_text(name));
  for (auto* names_of : {&missing, &misshapen})  // a tensor with several parameters is listed once
    names_of->erase(std::unique(names_of->begin(), names_of->end()), names_of->end());
  for (auto& name : missing)
    if (auto near = nearest(name, unknown)) name += fmt::format(" (there is {})", *near);
  std::string problems;
  list(problems, "missing", missing);
  list(problems, "wrong", misshapen);
  list(problems, "not in the model", unknown);
  if (!problems.empty()) throw usage_error("{}: its tensors are not those of the model:{}", folder.string(), problems);
  if (!tied) return;
  const auto& embedding = sources_[tied->slot];
  for (const char* name : tied_heads)
    if (const auto head = stored.find(name); head != stored.end() && !used.contains(name))
      check_head(folder, *tied, {*embedding.file, *embedding.tensor}, {*head->second.file, *head->second.tensor});
}

void HfSource::read(size_t slot, int64_t offset, std::span<float> out) const {
  const auto& source = sources_.at(slot);
  const auto& tensor = *source.tensor;
  auto end = offset + static_cast<int64_t>(out.size());
  RUNNER_CHECK(offset >= 0 && end <= tensor.numel(), "[{}, {}) of {}", offset, end, tensor.name);
  if (source.rows) return read_rows(source, offset, out);
  auto convert = [&](int64_t first, std::span<float> values) { source.file->read(tensor, first, values); };
  if (!source.transposed) return convert(offset, out);
  if (out.empty()) return;

  // The output is [rows, columns], the file [columns, rows]. Rows are processed in blocks, so that cache lines of both
  // sides are reused.
  int64_t columns = tensor.shape[0], rows = tensor.shape[1];
  std::array<float, 256> block;
  for (int64_t row = offset / columns; row * columns < end; row += std::ssize(block)) {
    auto count = std::min<int64_t>(std::ssize(block), (end - 1) / columns + 1 - row);
    for (int64_t column = 0; column < columns; ++column) {
      convert(column * rows + row, std::span(block).first(static_cast<size_t>(count)));
      for (int64_t i = 0; i < count; ++i) {
        int64_t element = (row + i) * columns + column;
        if (element >= offset && element < end)
          out[static_cast<size_t>(element - offset)] = block[static_cast<size_t>(i)];
      }
    }
  }
}

HfSource::Stored HfSource::stored(size_t slot) const {
  const auto& [file, tensor, transposed, rows] = sources_.at(slot);
  Stored stored{.dtype = tensor->dtype};
  if (transposed || (rows && rows->groups > 1)) return stored;
  stored.bytes = file->mapped(*tensor);
  if (!rows || stored.bytes.empty()) return stored;
  const size_t row_bytes = stored.bytes.size() / static_cast<size_t>(tensor->shape[0]);
  stored.bytes =
      stored.bytes.subspan(static_cast<size_t>(rows->first) * row_bytes, static_cast<size_t>(rows->count) * row_bytes);
  return stored;
}

void HfSource::read_rows(const Source& source, int64_t offset, std::span<float> out) {
  const auto& tensor = *source.tensor;
  const auto& rows = *source.rows;
  const int64_t columns = tensor.numel() / tensor.shape[0], group = rows.count * columns;
  while (!out.empty()) {
    const int64_t number = offset / group, inside = offset % group;
    const auto count = static_cast<size_t>(std::min<int64_t>(group - inside, std::ssize(out)));
    source.file->read(tensor, (rows.first + number * rows.stride) * columns + inside, out.first(count));
    out = out.subspan(count);
    offset += static_cast<int64_t>(count);
  }
}

std::unique_ptr<WeightFile> open_weight_file(const fs::path& path) {
  if (is_gguf(path)) return std::make_unique<GgufWeights>(path);
  return std::make_unique<SafetensorsWeights>(path);
}

std::optional<TiedHead> find_tied_head(const Recipe::Model& model, const ModelSpec& spec) {
  if (spec.blocks.back().shared.empty()) return std::nullopt;
  TiedHead tied{.slot = spec.slot(spec.blocks.back().shared.front())};
  tied.embedding = hf_names(model, spec)[tied.slot].name;
  if (family_kind(model.name) == "encoder") return tied;
  ModelSpec own;
  own.blocks.push_back({.name = "head", .parameters = {{.name = "head.weight", .shape = {}, .init = {}}}});
  tied.head = hf_names(model, own).front().name;
  return tied;
}

std::string difference_of_head(const fs::path& folder, const TiedHead& tied) {
  const auto path = folder / "adapter_model.safetensors";
  if (!fs::exists(path)) return "";
  const SafetensorsFile file(path);
  const auto *embedding = file.find(peft_prefix + tied.embedding), *head = file.find(peft_prefix + tied.head);
  if (!embedding && !head) return "";
  if (embedding && head && embedding->dtype == head->dtype && embedding->shape == head->shape &&
      std::ranges::equal(file.data(*embedding), file.data(*head)))
    return "";
  const auto config =
      nlohmann::json::parse(read_file(folder / "adapter_config.json"), nullptr, /*allow_exceptions=*/false);
  if (embedding && !head && config.is_object() && config.value("ensure_weight_tying", nlohmann::json()) == true)
    return "";
  const auto& lacking = embedding ? "the output layer" : "the embedding";
  return fmt::format("`{}` and the output layer share one weight here (model.tie_embeddings), and with this folder {}",
                     tied.embedding,
                     embedding && head ? "PEFT has two" : fmt::format("PEFT leaves {} as it is in the base", lacking));
}

}  // namespace runner
