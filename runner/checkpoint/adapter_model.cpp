#include "runner/checkpoint/adapter_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/models/adapters.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The folder or GGUF file of the base model.
fs::path find_base(const ModelPlace& place, const json& config) {
  const fs::path folder = place.folder;
  const auto named = config.value("base_model_name_or_path", json());
  const std::string base = !place.base.empty() ? place.base : named.is_string() ? named.get<std::string>() : "";
  if (base.empty())
    throw usage_error("{} is an adapter, and its adapter_config.json does not name a base model: --base FOLDER does",
                      place.name);
  for (const auto& path : {fs::path(base), folder / base, folder.parent_path() / base}) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored) ? fs::is_regular_file(path / "config.json", ignored) : is_model_folder(path))
      return path;
  }
  throw usage_error("{} is an adapter of the base model \"{}\", and there is no such model here{}", place.name,
                    shortened_text(base),
                    place.base.empty() ? ": download it, and name its folder or GGUF file with --base"
                                       : " (a folder with config.json, or a GGUF file)");
}

std::vector<std::string> names_in(const fs::path& folder, const json& config, const char* key) {
  const auto value = config.value(key, json());
  if (value.is_null()) return {};
  if (value == "all-linear") return {"all-linear"};
  if (!value.is_array() || !std::ranges::all_of(value, [](const json& name) { return name.is_string(); }))
    throw usage_error("{}: {} = {} is not a list of names; regular expressions of PEFT are not read",
                      (folder / "adapter_config.json").string(), key, shortened_json(value));
  return value.get<std::vector<std::string>>();
}

/// [fine_tune] as PEFT's settings say it. AdapterFolder compares the two, and checks what is not read here.
Recipe::FineTune settings_of(const fs::path& folder, const json& config) {
  Recipe::FineTune settings;
  try {
    settings.method = config.value("use_dora", false) ? "dora" : "lora";
    settings.rank = config.value("r", settings.rank);
    settings.alpha = config.value("lora_alpha", 8.0);
    settings.rslora = config.value("use_rslora", false);
  } catch (const json::exception&) {
    throw usage_error("{}: r, lora_alpha, use_dora or use_rslora has another type than PEFT writes",
                      (folder / "adapter_config.json").string());
  }
  settings.targets = names_in(folder, config, "target_modules");
  settings.modules_to_save = names_in(folder, config, "modules_to_save");
  settings.adapter = folder.string();
  return settings;
}

/// Gives the model an output layer of its own, with the weight of the embedding, as PEFT has it beside a trained copy of the embedding.
void untie(StoredModel& model) {
  model.recipe.model.tie_embeddings = false;
  auto untied = make_spec(model.recipe, model.spec.vocab_size, model.spec.seq_len);
  const auto& shared = model.spec.blocks.back().shared.front();
  std::vector<size_t> slots;
  for (const auto* parameter : untied.stored())
    slots.push_back(model.spec.stored_index(parameter->name == "head.weight" ? shared : parameter->name));
  model.has = [has = model.has, slots](size_t slot) { return has(slots[slot]); };
  model.read = [read = model.read, slots](size_t slot, int64_t offset, std::span<float> out) {
    read(slots[slot], offset, out);
  };
  model.spec = std::move(untied);
}

/// A matrix with an adapter, and the adapter's values. Reads rows of the sum.
class MergedMatrix {
 public:
  /// `matrix`, `names`: of the parameters of `spec`.
  MergedMatrix(const ModelSpec& spec, const ParameterReader& read, size_t matrix, const AdapterNames& names)
      : read_(read),
        matrix_(matrix),
        rank_(spec.adapter->rank),
        columns_(spec.parameters()[matrix]->shape.back()),
        scale_(spec.adapter->scale),
        a_(values_of(spec, names.a)),
        b_(values_of(spec, names.b)) {
    if (spec.adapter->magnitudes) find_factors(values_of(spec, names.magnitude));
  }

  /// Elements [offset, offset + out.size()), in any parts of rows.
  void read(int64_t offset, std::span<float> out) const {
    read_(matrix_, offset, out);
    for (size_t done = 0; done < out.size();) {
      const int64_t element = offset + static_cast<int64_t>(done), row = element / columns_,
                    column = element % columns_;
      const auto count = std::min(out.size() - done, static_cast<size_t>(columns_ - column));
      add(row, column, out.subspan(done, count));
      const double factor = factors_.empty() ? 1 : factors_[static_cast<size_t>(row)];
      if (factor != 1)
        for (auto& value : out.subspan(done, count)) value = static_cast<float>(factor * value);
      done += count;
    }
  }

 private:
  std::vector<float> values_of(const ModelSpec& spec, const std::string& name) const {
    const size_t slot = spec.slot(name);
    std::vector<float> values(static_cast<size_t>(spec.numel(slot)));
    read_(slot, 0, values);
    return values;
  }

  /// Adds scale B A to a part of a row.
  void add(int64_t row, int64_t column, std::span<float> out) const {
    std::vector<double> sum(out.size());
    for (int64_t k = 0; k < rank_; ++k) {
      const double factor = b_[static_cast<size_t>(row * rank_ + k)];
      const float* a = a_.data() + k * columns_ + column;
      for (size_t i = 0; i < out.size(); ++i) sum[i] += factor * a[i];
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(out[i] + scale_ * sum[i]);
  }

  /// The magnitudes relative to the norms of the rows.
  void find_factors(const std::vector<float>& magnitudes) {
    std::vector<float> row(static_cast<size_t>(columns_));
    for (size_t r = 0; r < magnitudes.size(); ++r) {
      read_(matrix_, static_cast<int64_t>(r) * columns_, row);
      add(static_cast<int64_t>(r), 0, row);
      double squares = 0;
      for (float value : row) squares += static_cast<double>(value) * value;
      factors_.push_back(squares > 0 ? magnitudes[r] / std::sqrt(squares) : 1);
    }
  }

  const ParameterReader& read_;
  size_t matrix_;
  int64_t rank_, columns_;
  double scale_;
  std::vector<float> a_, b_;
  std::vector<double> factors_;
};

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  return fs::is_regular_file(folder / "adapter_config.json") && !fs::is_regular_file(folder / "config.json");
}

StoredModel open_adapter_model(const ModelPlace& place) {
  const fs::path folder = place.folder;
  const auto config = read_json_object(folder / "adapter_config.json");
  auto base_place = place;
  base_place.folder = find_base(place, config).string();
  auto model = open_stored_model(base_place);
  if (const auto tied = find_tied_head(model.recipe.model, model.spec);
      tied && !tied->head.empty() && !difference_of_head(folder, *tied).empty())
    untie(model);
  auto recipe = model.recipe;
  recipe.model.init_from = base_place.folder;
  recipe.fine_tune = settings_of(folder, config);
  const auto trained = make_spec(recipe, model.spec.vocab_size, model.spec.seq_len);
  if ((config.value("task_type", json()) == "SEQ_CLS") != trained.task.has_value())
    throw usage_error("{} is an adapter {} a classifier, and {} is {}", place.name,
                      trained.task ? "that is not of" : "of", base_place.folder, trained.task ? "one" : "none");
  const auto adapter = std::make_shared<AdapterFolder>(folder, recipe, trained);
  std::vector<size_t> slots;  // of the base, by those of `trained`
  for (const auto* parameter : trained.stored())
    slots.push_back(adapted_matrix(parameter->name).empty() ? model.spec.stored_index(parameter->name) : SIZE_MAX);
  std::vector<bool> given(model.spec.stored().size(), false);  // by the adapter: a module that was trained completely
  for (size_t slot = 0; slot < slots.size(); ++slot)
    if (slots[slot] != SIZE_MAX && adapter->has(slot)) given[slots[slot]] = true;
  model.has = [has = model.has, given](size_t slot) { return given[slot] || has(slot); };
  model.read = merged_reader(trained, model.spec,
                             [read = model.read, adapter, slots](size_t slot, int64_t offset, std::span<float> out) {
                               if (adapter->has(slot)) return adapter->read(slot, offset, out);
                               RUNNER_CHECK(slots[slot] != SIZE_MAX, "the adapter lacks a parameter");
                               read(slots[slot], offset, out);
                             });
  model.stored = [dtype = model.dtype](size_t) { return HfSource::Stored{.dtype = dtype}; };
  if (!hf_tokenizer_file(folder).empty()) model.recipe.data.tokenizer = folder.string();
  return model;
}

ParameterReader merged_reader(const ModelSpec& spec, const ModelSpec& base, ParameterReader read) {
  struct Place {
    size_t slot;  ///< of the parameter in `spec`
    std::optional<AdapterNames> adapter = {};
  };
  std::map<std::string, size_t> slots;
  const auto parameters = spec.stored();
  for (size_t slot = 0; slot < parameters.size(); ++slot) slots[parameters[slot]->name] = slot;
  std::vector<Place> places;
  for (const auto* parameter : base.stored()) {
    const auto names = adapter_names(parameter->name);
    const bool adapted = adapted_matrix(names.a) == parameter->name && slots.contains(names.a);  // not the bias
    places.push_back({.slot = slots.at(parameter->name), .adapter = adapted ? std::optional(names) : std::nullopt});
  }
  struct Last {
    size_t slot = SIZE_MAX;
    std::optional<MergedMatrix> matrix = {};
  };
  const auto last = std::make_shared<Last>();
  const auto reader = std::make_shared<ParameterReader>(std::move(read));
  const auto own = std::make_shared<const ModelSpec>(spec);
  return [=](size_t slot, int64_t offset, std::span<float> out) {
    const auto& place = places[slot];
    if (!place.adapter) return (*reader)(place.slot, offset, out);
    if (last->slot != slot) {
      last->matrix.reset();
      last->matrix.emplace(*own, *reader, place.slot, *place.adapter);
      last->slot = slot;
    }
    last->matrix->read(offset, out);
  };
}

}  // namespace runner
