#include "runner/checkpoint/stored_model.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/adapter_model.hpp"
#include "runner/checkpoint/fit.hpp"
#include "runner/checkpoint/run_weights.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_processor.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

using namespace nlohmann::literals;
using nlohmann::json;

namespace {

/// The dtype of the parameter with the most elements.
std::string main_dtype(const ModelSpec& spec, const std::function<std::string(size_t slot)>& dtype_of) {
  const auto parameters = spec.parameters();
  size_t largest = 0;
  for (size_t slot = 0; slot < parameters.size(); ++slot)
    if (parameters[slot]->numel() > parameters[largest]->numel()) largest = slot;
  return dtype_of(largest);
}

StoredModel open_folder(const ModelPlace& place) {
  const fs::path folder = place.folder;
  StoredModel model{.folder = folder};
  auto& recipe = model.recipe;
  recipe.model = model_of_hf_folder(folder);
  const auto& settings = recipe.model;
  if (labels_texts(settings)) {
    recipe.data.tokenizer = folder.string();
    model.learned = take_label_folder(folder, read_hf_config(folder), recipe);
    model.spec = make_spec(recipe, settings.vocab_size.value(), settings.max_seq_len);
  } else if (is_language_model(settings.name)) {
    recipe.data.tokenizer = folder.string();
    recipe.data.format = "text";
    if (family_kind(settings.name) == "encoder") recipe.data.objective = "masked_lm";
    model.spec = make_spec(recipe, settings.vocab_size.value(), settings.max_seq_len);
  } else {
    model.learned = take_label_folder(folder, read_hf_config(folder), recipe);
    model.spec = make_spec(recipe, settings.num_labels.value(), /*seq_len=*/1);
  }
  const auto source = std::make_shared<HfSource>(folder, settings, model.spec);
  model.has = [source](size_t slot) { return source->has(slot); };
  model.read = [source](size_t slot, int64_t offset, std::span<float> out) { source->read(slot, offset, out); };
  model.stored = [source](size_t slot) { return source->stored(slot); };
  model.dtype = main_dtype(model.spec,
                           [&](size_t slot) { return source->has(slot) ? source->stored(slot).dtype : std::string(); });
  return model;
}

/// The folder with the companions of a run's model: of its tokenizer if it has any, otherwise of its base.
fs::path companion_folder(const Recipe& recipe) {
  const fs::path tokenizer = recipe.data.tokenizer;
  const bool given = recipe.data.tokenizer != "bytes" && recipe.data.tokenizer != "sentencepiece";
  if (given && is_model_folder(tokenizer)) return tokenizer;
  if (given && fs::is_regular_file(tokenizer)) return tokenizer.parent_path();
  return recipe.model.init_from ? fs::path(*recipe.model.init_from) : fs::path();
}

std::string loss_of(const fs::path& folder, const json& config) {
  if (config.contains("loss")) return config.at("loss");  // written by runner
  const auto target = config.value("target_type", "");
  const auto problem = config.contains("problem_type") && config.at("problem_type").is_string()
                           ? config.at("problem_type").get<std::string>()
                           : "single_label_classification";
  if (target == "binary" || problem == "multi_label_classification") return "bce";
  if (target == "number" || problem == "regression") return "mse";
  if (problem != "single_label_classification")
    throw usage_error(
        "{}: config.json: problem_type = \"{}\" is not supported; allowed: single_label_classification, "
        "multi_label_classification or regression",
        folder.string(), shortened_text(problem));
  return "cross_entropy";
}

json take_table(const fs::path& folder, const json& config, Recipe::Data& data) {
  if (!config.contains("features") || !config.contains("targets"))
    throw usage_error("{}: config.json names no columns (features, targets), so tables cannot be read for this model",
                      folder.string());
  data.format = "csv";
  data.target_type = config.value("target_type", "class");
  for (const auto& target : config.at("targets")) data.target.push_back(target.at("column").get<std::string>());
  return {{"version", config.value("version", 1)},
          {"target_type", data.target_type},
          {"features", config.at("features")},
          {"targets", config.at("targets")}};
}

/// For texts with labels or numbers. label_folder_config() wrote the names of the columns; other programs' folders have the usual names.
json take_texts(const json& config, Recipe& recipe) {
  auto& data = recipe.data;
  const bool numbers = recipe.train.loss == "mse", several = recipe.train.loss == "bce";
  data.format = "jsonl";
  data.objective = "classification";
  data.target_type = numbers ? "number" : several ? "binary" : "class";
  const auto count = static_cast<size_t>(recipe.model.num_labels.value());
  auto names = recipe.model.labels;  // transformers leaves out those that are LABEL_0 and LABEL_1
  for (size_t i = names.size(); i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
  data.labels = names;
  const bool known = config.contains("/runner/columns"_json_pointer);
  Recipe::Data::Columns columns = config.value("/runner/columns"_json_pointer, json::object());
  json targets = json::array();
  if (data.target_type == "class") {
    const auto label = columns.extract("label");
    data.target = {label ? label.mapped() : "label"};
    const auto is_number = [](const std::string& name) {
      return name.find_first_not_of("-.0123456789") == std::string::npos;
    };
    // Whole numbers stand for the class at their place, unless they are names themselves.
    targets.push_back(
        {{"column", data.target.front()}, {"classes", names}, {"numbered", std::ranges::none_of(names, is_number)}});
  }
  for (size_t i = 0; data.target_type != "class" && i < count; ++i) {
    const auto& name = names[i];
    data.target.push_back(name);
    targets.push_back({{"column", name}});
    if (several)
      targets.back()["classes"] = {"0", "1"};
    else
      targets.back().update({{"mean", 0.0}, {"scale", 1.0}});
  }
  if (known) data.columns = columns;
  return {{"target_type", data.target_type}, {"features", json::array()}, {"targets", targets}};
}

json take_images(const fs::path& folder, const json& config, Recipe& recipe) {
  const auto file = folder / "preprocessor_config.json";
  if (!has_model_file(file))
    throw usage_error("{} has no preprocessor_config.json, which says how images are resized and normalized",
                      folder.string());
  const auto processor = read_json_object(file);
  json learned = json::object();
  try {
    learned["crop"] = take_image_processor(processor, recipe.data) == ImageCrop::none ? "none" : "centre";
  } catch (const Error& error) {
    throw usage_error("{}: {}", folder.string(), error.what());
  }
  if (recipe.model.name == "vit" && recipe.data.image_size != recipe.model.image_size)
    throw usage_error("{}: preprocessor_config.json makes images of {} pixels, and the model has {}", folder.string(),
                      recipe.data.image_size, recipe.model.image_size);
  recipe.model.image_size = recipe.data.image_size;
  recipe.data.format = "images";
  const bool named = config.contains("id2label") && config.at("id2label").is_object();
  learned["id2label"] = named ? config.at("id2label") : label_tables(recipe.model.num_labels.value()).at("id2label");
  return learned;
}

json take_folder(const fs::path& folder, const json& config, Recipe& recipe) {
  recipe.train.loss = loss_of(folder, config);
  recipe.train.huber_delta = config.value("huber_delta", recipe.train.huber_delta);
  if (labels_texts(recipe.model)) {
    if (recipe.model.num_labels == 1 && config.value("problem_type", json()).is_null()) recipe.train.loss = "mse";
    return take_texts(config, recipe);
  }
  return recipe.model.name == "mlp" ? take_table(folder, config, recipe.data) : take_images(folder, config, recipe);
}

}  // namespace

void use_kept_tokenizer(Recipe::Data& data, const fs::path& run_dir) {
  const auto kept = run_dir / kept_tokenizer;
  if (data.tokenizer == "sentencepiece" && fs::exists(kept)) data.tokenizer = kept.string();
}

void keep_trained_tokenizer(Recipe::Data& data, const fs::path& run_dir) {
  if (fs::exists(run_dir / kept_tokenizer)) data.trained_tokenizer = (run_dir / kept_tokenizer).string();
}

namespace {

StoredModel open_checkpoint(const ModelPlace& place) {
  const Checkpoint checkpoint(place.checkpoint, /*verify=*/false);
  StoredModel model{.recipe = load_recipe((fs::path(place.run_dir) / "resolved.toml").string())};
  model.recipe.data.mixup = model.recipe.data.cutmix = 0;  // of training only
  use_kept_tokenizer(model.recipe.data, place.run_dir);
  const Recipe& recipe = model.recipe;
  const ModelSpec trained = spec_of(recipe, checkpoint);
  if (auto other = other_model(checkpoint, recipe.model, trained.vocab_size); !other.empty())
    throw usage_error("{} is of another model than {}:\n  {}", place.checkpoint, place.run_dir, join(other, "\n  "));
  if (is_language_model(recipe.model.name)) model.recipe.model.vocab_size = trained.vocab_size;
  model.tokenizer_digest = checkpoint.state().value("/data/meaning/data.tokenizer/xxh3"_json_pointer, std::string());
  model.learned = checkpoint.state().value("/data/learned"_json_pointer, nlohmann::json());
  model.spec = make_base_spec(recipe, trained.vocab_size, trained.seq_len);
  const auto base = base_reader(recipe, trained, model.spec, checkpoint);
  model.read = merged_reader(trained, model.spec, model_reader(recipe, checkpoint, trained, base));
  model.dtype = "F32";
  if (std::ranges::none_of(trained.parameters(), &ParameterSpec::of_base))
    model.dtype =
        main_dtype(trained, [&](size_t slot) { return checkpoint.dtype("param/" + trained.parameters()[slot]->name); });
  model.stored = [dtype = model.dtype](size_t) { return HfSource::Stored{.dtype = dtype}; };
  model.has = [](size_t) { return true; };
  model.folder = companion_folder(recipe);
  return model;
}

bool is_checkpoint(const fs::path& folder) { return fs::is_regular_file(folder / "manifest.json"); }

ModelPlace checkpoint_place(const fs::path& checkpoint, const fs::path& run_dir, const std::string& name) {
  if (!fs::is_regular_file(run_dir / "resolved.toml"))
    throw usage_error(
        "{} is a checkpoint, but {} has no resolved.toml, which says what its model is: leave checkpoints in the "
        "folder "
        "of their run, or write them as a folder for other programs with `runner export`",
        checkpoint.string(), run_dir.string());
  return {.run_dir = fs::absolute(run_dir).lexically_normal().string(),
          .checkpoint = fs::absolute(checkpoint).lexically_normal().string(),
          .name = name,
          .step = Checkpoint(checkpoint, /*verify=*/false).step()};
}

}  // namespace

StoredModel open_stored_model(const ModelPlace& place) {
  if (place.of_run()) return open_checkpoint(place);
  return is_adapter_folder(place.folder) ? open_adapter_model(place) : open_folder(place);
}

ModelPlace place_of_run(const std::string& run, const fs::path& run_dir, const Attempts& attempts) {
  if (!fs::is_directory(run_dir))
    throw usage_error("run {} has no weights: its folder {} was moved or deleted", run, run_dir.string());
  const auto skip = [](const std::string& text) { log::warning("{}", text); };
  const auto newest = newest_good_checkpoint(run_dir / "checkpoints", attempts, skip);
  if (!newest)
    throw usage_error("run {} has no {}checkpoint in {}", run,
                      list_checkpoints(run_dir / "checkpoints").empty() ? "" : "good ",
                      (run_dir / "checkpoints").string());
  return checkpoint_place(*newest, run_dir, run);
}

std::optional<ModelPlace> place_at(const fs::path& path) {
  const ModelPlace here{.folder = fs::absolute(path).lexically_normal().string(), .name = path.string()};
  if (!fs::is_directory(path)) return is_model_folder(path) ? std::optional(here) : std::nullopt;
  if (is_checkpoint(path)) {
    const auto folder = fs::absolute(path / "").lexically_normal().parent_path();
    return checkpoint_place(path, folder.parent_path().parent_path(), path.string());
  }
  if (fs::is_regular_file(path / "resolved.toml")) return place_of_run(path.string(), path, {});
  if (fs::is_regular_file(path / "config.json") || is_adapter_folder(path)) return here;
  throw usage_error(
      "{} is neither a Hugging Face folder (it has no config.json) nor a checkpoint (no manifest.json) nor the folder "
      "of a run (no resolved.toml)",
      path.string());
}

json take_label_folder(const fs::path& folder, const json& config, Recipe& recipe) {
  try {
    return take_folder(folder, config, recipe);
  } catch (const json::exception& error) {
    throw usage_error("{}: the labels, columns or image settings are damaged: {}", folder.string(), error.what());
  }
}

json label_folder_config(const Recipe& recipe, const json& learned) {
  if (labels_texts(recipe.model)) {
    json columns = sources_of(recipe.data).front().data.columns.value_or(Recipe::Data::Columns());
    if (recipe.data.target_type == "class") columns["label"] = recipe.data.target.at(0);
    return {{"runner", {{"columns", columns}}}};
  }
  json config = learned.is_object() ? learned : json::object();
  const auto loss = recipe.train.loss.value_or("cross_entropy");
  if (recipe.model.name == "mlp") {
    config["loss"] = loss;
    if (loss == "huber") config["huber_delta"] = recipe.train.huber_delta;
  }
  if (config.contains("id2label"))  // outputs without a class in the data have Hugging Face's names
    for (int64_t id = std::ssize(config["id2label"]); id < recipe.model.num_labels.value_or(0); ++id) {
      const auto name = fmt::format("LABEL_{}", id);
      config["id2label"][std::to_string(id)] = name;
      config["label2id"][name] = id;
    }
  return config;
}

}  // namespace runner
