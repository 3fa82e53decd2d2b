#include "runner/checkpoint/label_folder.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data_sources.hpp"
#include "runner/data/image_processor.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

using nlohmann::json;

namespace {

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
        folder.string(), problem);
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
  const auto processor = foreign_json(read_model_file(file));
  if (!processor.is_object()) throw usage_error("{} is not a JSON object", file.string());
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
