#include "runner/checkpoint/adapter_files.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/models/adapters.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The adapter of one of our matrices in a module of transformers.
struct AdaptedPart {
  size_t a = 0, b = 0;                   ///< slots
  std::optional<size_t> magnitude = {};  ///< slot of the magnitudes
  std::optional<HfRows> rows = {};

  /// The row of the module's B that is row `row` of ours.
  int64_t row_of(int64_t row) const {
    return rows ? rows->first + row / rows->count * rows->stride + row % rows->count : row;
  }
};
struct AdaptedModule {
  std::string name;  ///< "model.layers.0.self_attn.q_proj"
  int64_t in = 0, out = 0;
  std::vector<AdaptedPart> parts = {};
  std::string short_name() const { return name.substr(name.rfind('.') + 1); }
  /// Rows of the module that have an adapter.
  int64_t adapted_rows(const ModelSpec& spec) const {
    int64_t rows = 0;
    for (const auto& part : parts) rows += spec.parameters()[part.b]->shape[0];
    return rows;
  }
};

/// The modules of transformers that have adapters, and the slots of parameters that are trained completely.
struct AdaptedModel {
  std::vector<AdaptedModule> modules;
  std::vector<size_t> whole;
  std::vector<HfTensor> tensors;           ///< by slot
  std::optional<TiedHead> tied_head = {};  ///< if its weight is among `whole`

  AdaptedModel(const Recipe& recipe, const ModelSpec& spec) : tensors(hf_names(recipe.model, spec)) {
    const auto parameters = spec.parameters();
    for (size_t slot = 0; slot < parameters.size(); ++slot) {
      const auto& parameter = *parameters[slot];
      const auto matrix = adapted_matrix(parameter.name);
      if (matrix.empty()) {
        if (parameter.trainable) whole.push_back(slot);
        continue;
      }
      const auto names = adapter_names(matrix);
      if (parameter.name != names.a) continue;
      const auto& tensor = tensors[slot];
      const auto name = tensor.name.substr(0, tensor.name.rfind('.'));
      const size_t b = spec.slot(names.b);
      auto found = std::ranges::find(modules, name, &AdaptedModule::name);
      if (found == modules.end()) {
        const int64_t out = tensor.rows ? tensor.rows->all : parameters[b]->shape[0];
        found = modules.insert(found, {.name = name, .in = parameter.shape[1], .out = out});
      }
      const auto magnitude = spec.adapter->magnitudes ? std::optional(spec.slot(names.magnitude)) : std::nullopt;
      found->parts.push_back({.a = slot, .b = b, .magnitude = magnitude, .rows = tensor.rows});
    }
    const auto tied = find_tied_head(recipe.model, spec);
    if (tied && parameters[tied->slot]->trainable) tied_head = tied;
  }
};

std::vector<float> read_all(const ParameterReader& read, const ModelSpec& spec, size_t slot) {
  std::vector<float> values(static_cast<size_t>(spec.numel(slot)));
  read(slot, 0, values);
  return values;
}

/// The matrices of a module's adapter, and its magnitudes if it has them.
struct Product {
  int64_t rank;
  std::vector<float> a, b, magnitudes = {};  ///< [rank, in], [out, rank], [out]
};

Product join_parts(const AdaptedModule& module, const ModelSpec& spec, const ParameterReader& read) {
  const int64_t rank = spec.adapter->rank, all = rank * std::ssize(module.parts);
  Product joined{.rank = all, .a = {}, .b = std::vector<float>(static_cast<size_t>(module.out * all))};
  for (size_t p = 0; p < module.parts.size(); ++p) {
    const auto& part = module.parts[p];
    const auto a = read_all(read, spec, part.a), b = read_all(read, spec, part.b);
    joined.a.insert(joined.a.end(), a.begin(), a.end());
    for (int64_t row = 0; row < std::ssize(b) / rank; ++row)
      std::copy_n(b.begin() + row * rank, rank,
                  joined.b.begin() + part.row_of(row) * all + static_cast<int64_t>(p) * rank);
    if (!part.magnitude) continue;
    joined.magnitudes.resize(static_cast<size_t>(module.out));
    const auto magnitudes = read_all(read, spec, *part.magnitude);
    for (int64_t row = 0; row < std::ssize(magnitudes); ++row)
      joined.magnitudes[static_cast<size_t>(part.row_of(row))] = magnitudes[static_cast<size_t>(row)];
  }
  return joined;
}

// ---- reading

/// The tensors of an adapter's file, each used once.
class AdapterTensors {
 public:
  explicit AdapterTensors(const fs::path& path) : file_(path) {
    for (const auto& tensor : file_.tensors()) unused_.insert(tensor.name);
  }
  /// The values of a tensor; empty if the file does not have it.
  std::vector<float> take(const std::string& name, std::vector<int64_t>& shape) {
    const auto* tensor = file_.find(name);
    if (!tensor) return {};
    if (!is_float_dtype(tensor->dtype))
      throw usage_error("fine_tune.adapter: `{}` has the type {}, which is not that of an adapter", name,
                        tensor->dtype);
    unused_.erase(name);
    shape = tensor->shape;
    std::vector<float> values(static_cast<size_t>(tensor->numel()));
    to_floats(tensor->dtype, file_.data(*tensor), values);
    return values;
  }
  const std::set<std::string>& unused() const { return unused_; }

 private:
  SafetensorsFile file_;
  std::set<std::string> unused_;
};

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// [rows, columns] -> [columns, rows].
std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> out(values.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
  return out;
}

/// Fills the parts of a module from its product. The rank is that of the recipe, shared by all parts, or the sum of the parts'.
void split_product(const AdaptedModule& module, const Product& product, const ModelSpec& spec,
                   std::vector<std::vector<float>>& values) {
  const int64_t rank = spec.adapter->rank;
  const bool joined = product.rank != rank;
  for (size_t p = 0; p < module.parts.size(); ++p) {
    const auto& part = module.parts[p];
    const int64_t first = joined ? static_cast<int64_t>(p) * rank : 0;
    values[part.a].assign(product.a.begin() + first * module.in, product.a.begin() + (first + rank) * module.in);
    auto& b = values[part.b];
    b.resize(static_cast<size_t>(spec.numel(part.b)));
    for (int64_t row = 0; row < std::ssize(b) / rank; ++row)
      std::copy_n(product.b.begin() + part.row_of(row) * product.rank + first, rank, b.begin() + row * rank);
    if (!part.magnitude) continue;
    auto& magnitudes = values[*part.magnitude];
    for (int64_t row = 0; row < std::ssize(b) / rank; ++row)
      magnitudes.push_back(product.magnitudes[static_cast<size_t>(part.row_of(row))]);
  }
}

/// Whether each part's rows of B have zeros outside of the part's own columns, as join_parts() writes.
bool is_joined(const AdaptedModule& module, const Product& product, const ModelSpec& spec) {
  const int64_t rank = spec.adapter->rank;
  for (size_t p = 0; p < module.parts.size(); ++p)
    for (int64_t row = 0; row < spec.numel(module.parts[p].b) / rank; ++row)
      for (int64_t c = 0; c < product.rank; ++c)
        if (c / rank != static_cast<int64_t>(p) &&
            product.b[static_cast<size_t>(module.parts[p].row_of(row) * product.rank + c)] != 0)
          return false;
  return true;
}

}  // namespace

AdapterFolder::AdapterFolder(const fs::path& folder, const Recipe& recipe, const ModelSpec& spec) {
  const AdapterConfig config(folder);
  config.check(recipe.fine_tune);
  const auto path = folder / "adapter_model.safetensors";
  if (!fs::exists(path)) throw usage_error("fine_tune.adapter: {} has no adapter_model.safetensors", folder.string());
  AdapterTensors tensors(path);
  const AdaptedModel model(recipe, spec);
  values_.resize(spec.parameters().size());
  std::vector<std::string> problems;
  for (const auto& module : model.modules) {
    std::vector<int64_t> a_shape, b_shape, m_shape;
    const auto name = peft_prefix + module.name;
    Product product{.rank = 0,
                    .a = tensors.take(name + ".lora_A.weight", a_shape),
                    .b = tensors.take(name + ".lora_B.weight", b_shape),
                    .magnitudes = {}};
    if (spec.adapter->magnitudes) product.magnitudes = tensors.take(name + ".lora_magnitude_vector", m_shape);
    if (product.a.empty() || product.b.empty()) {
      problems.push_back(fmt::format("the folder has no adapter of `{}`", module.name));
      continue;
    }
    product.rank = a_shape.empty() ? 0 : a_shape[0];
    if (auto problem = config.other_factor(module.name, recipe.fine_tune); !problem.empty()) {
      problems.push_back(problem);
      continue;
    }
    const int64_t rank = spec.adapter->rank;
    const bool joined = product.rank == rank * std::ssize(module.parts) && module.parts.size() > 1;
    if ((product.rank != rank && !joined) || a_shape != std::vector<int64_t>{product.rank, module.in} ||
        b_shape != std::vector<int64_t>{module.out, product.rank})
      problems.push_back(fmt::format("`{}` has A {} and B {} instead of [{}, {}] and [{}, {}]", module.name,
                                     shape_text(a_shape), shape_text(b_shape), rank, module.in, module.out, rank));
    else if (spec.adapter->magnitudes && m_shape != std::vector<int64_t>{module.out})
      problems.push_back(
          fmt::format("`{}` has magnitudes {} instead of [{}]", module.name, shape_text(m_shape), module.out));
    else if (joined && !is_joined(module, product, spec))
      problems.push_back(fmt::format("the adapter of `{}` has rank {} and cannot be divided into {} of rank {}",
                                     module.name, product.rank, module.parts.size(), rank));
    else
      split_product(module, product, spec, values_);
  }
  for (size_t slot : model.whole) {
    std::vector<int64_t> shape, own = spec.parameters()[slot]->shape;
    auto values = tensors.take(peft_prefix + model.tensors[slot].name, shape);
    if (values.empty()) continue;  // it starts from the base
    if (model.tensors[slot].transposed) std::swap(own.at(0), own.at(1));
    if (shape != own)
      problems.push_back(
          fmt::format("`{}` is {} instead of {}", model.tensors[slot].name, shape_text(shape), shape_text(own)));
    else
      values_[slot] = model.tensors[slot].transposed ? transposed(values, own[0], own[1]) : std::move(values);
  }
  if (const auto& tied = model.tied_head) {
    std::vector<int64_t> shape;
    tensors.take(peft_prefix + tied->head, shape);  // the same values as those of the embedding
    if (const auto difference = difference_of_head(folder, *tied); !difference.empty()) problems.push_back(difference);
  }
  for (const auto& name : tensors.unused())
    problems.push_back(fmt::format("the recipe's targets do not include `{}`", name));
  if (problems.empty()) return;
  constexpr size_t listed = 8;
  if (problems.size() > listed) problems.resize(listed);
  throw usage_error("fine_tune.adapter: {} does not fit fine_tune.targets and the model{}:\n  {}", path.string(),
                    config.choices(), join(problems, "\n  "));
}

void AdapterFolder::read(size_t slot, int64_t offset, std::span<float> out) const {
  std::copy_n(values_[slot].begin() + offset, out.size(), out.begin());
}

// ---- writing

namespace {

/// Short names of modules if they name the adapted ones only, and otherwise complete names.
std::vector<std::string> target_names(const AdaptedModel& model) {
  std::set<std::string> adapted, names, complete;
  for (const auto& module : model.modules) {
    adapted.insert(module.name);
    names.insert(module.short_name());
    complete.insert(module.name);
  }
  for (const auto& tensor : model.tensors) {
    const auto module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (tensor.name.ends_with(".weight") && names.contains(module.substr(module.rfind('.') + 1)) &&
        !adapted.contains(module))
      return {complete.begin(), complete.end()};
  }
  return {names.begin(), names.end()};
}

json config_of(const Recipe& recipe, const ModelSpec& spec, const AdaptedModel& model) {
  const auto& fine_tune = recipe.fine_tune;
  json ranks = json::object(), alphas = json::object(), whole = json::array();
  bool transposed = false;
  for (const auto& module : model.modules) {
    transposed |= model.tensors[spec.slot(adapted_matrix(spec.parameters()[module.parts[0].a]->name))].transposed;
    const auto parts = static_cast<double>(module.parts.size());
    if (parts == 1) continue;
    ranks[module.name] = fine_tune.rank * std::ssize(module.parts);
    alphas[module.name] = fine_tune.alpha * (fine_tune.rslora ? std::sqrt(parts) : parts);
  }
  const auto add_whole = [&](const std::string& tensor) {
    const auto name = saved_module(tensor.substr(0, tensor.rfind('.')));
    if (std::find(whole.begin(), whole.end(), name) == whole.end()) whole.push_back(name);
  };
  for (size_t slot : model.whole) add_whole(model.tensors[slot].name);
  if (model.tied_head) add_whole(model.tied_head->head);
  return {{"alpha_pattern", alphas},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", recipe.model.init_from ? json(*recipe.model.init_from) : json()},
          {"bias", "none"},
          {"fan_in_fan_out", transposed},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"lora_alpha", fine_tune.alpha},
          {"lora_dropout", fine_tune.dropout},
          {"modules_to_save", whole.empty() ? json() : whole},
          {"peft_type", "LORA"},
          {"r", fine_tune.rank},
          {"rank_pattern", ranks},
          {"revision", nullptr},
          {"target_modules", target_names(model)},
          {"task_type", spec.task ? "SEQ_CLS" : "CAUSAL_LM"},
          {"use_dora", fine_tune.has_magnitudes()},
          {"use_rslora", fine_tune.rslora}};
}

std::span<const std::byte> bytes_of_floats(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

void export_adapter(const fs::path& folder, const Recipe& recipe, const ModelSpec& spec, const ParameterReader& read) {
  const AdaptedModel model(recipe, spec);
  std::vector<TensorInfo> tensors;
  std::vector<std::vector<float>> values;
  for (const auto& module : model.modules) {
    // The magnitudes of rows without an adapter would be norms of the base, which is not read here.
    if (spec.adapter->magnitudes && module.adapted_rows(spec) != module.out)
      throw usage_error(
          "PEFT has magnitudes for all rows of `{}`, and only some of its matrices have adapters (fine_tune.targets); "
          "export the merged model instead, without --adapter",
          module.name);
    auto [rank, a, b, magnitudes] = join_parts(module, spec, read);
    tensors.push_back(
        {.name = peft_prefix + module.name + ".lora_A.weight", .dtype = "F32", .shape = {rank, module.in}});
    values.push_back(std::move(a));
    tensors.push_back(
        {.name = peft_prefix + module.name + ".lora_B.weight", .dtype = "F32", .shape = {module.out, rank}});
    values.push_back(std::move(b));
    if (!spec.adapter->magnitudes) continue;
    tensors.push_back(
        {.name = peft_prefix + module.name + ".lora_magnitude_vector", .dtype = "F32", .shape = {module.out}});
    values.push_back(std::move(magnitudes));
  }
  for (size_t slot : model.whole) {
    auto shape = spec.parameters()[slot]->shape;
    auto whole = read_all(read, spec, slot);
    if (model.tensors[slot].transposed) {
      whole = transposed(whole, shape.at(0), shape.at(1));
      std::swap(shape[0], shape[1]);
    }
    tensors.push_back({.name = peft_prefix + model.tensors[slot].name, .dtype = "F32", .shape = shape});
    values.push_back(std::move(whole));
    if (!model.tied_head || model.tied_head->slot != slot) continue;
    // PEFT's copy of the embedding does not change the output layer, so that is written, too.
    if (model.tied_head->head.empty())
      throw usage_error(
          "the output layer of {} shares the weight of `{}`, which the run has trained, and PEFT cannot train both "
          "as one; export the merged model instead, without --adapter",
          recipe.model.name, model.tensors[slot].name);
    tensors.push_back({.name = peft_prefix + model.tied_head->head, .dtype = "F32", .shape = std::move(shape)});
    values.push_back(values.back());
  }
  write_export(folder, [&](const fs::path& temporary) {
    SafetensorsWriter writer(temporary / "adapter_model.safetensors", tensors, {{"format", "pt"}});
    for (const auto& tensor : values) writer.write(bytes_of_floats(tensor));
    writer.finish();
    write_file_atomic(temporary / "adapter_config.json", config_of(recipe, spec, model).dump(2) + "\n");
  });
}

std::string base_digest(const fs::path& folder) {
  constexpr size_t part = 1 << 20;
  Xxh3 digest;
  for (const auto& path : hf_weight_files(folder)) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const auto size = bytes.size();
    digest.update(std::as_bytes(std::span(&size, 1)));
    digest.update(bytes.first(std::min(part, size)));
    digest.update(bytes.last(std::min(part, size)));
  }
  return digest.hex();
}

}  // namespace runner
