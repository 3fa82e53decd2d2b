// The facts about the model and the loss that the data determine.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/recipe_builder.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/labelled_texts.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/table_data.hpp"
#include "runner/data/tokenizers.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

/// Sets `value` unless the recipe has set it. Throws Error(usage) if that does not fit. `or_more`: a larger value fits.
void take(Recipe& recipe, const std::string& key, std::optional<int64_t>& value, int64_t found, const std::string& what,
          bool or_more) {
  const std::string place = recipe.data.sources.empty() ? "data.train" : "data.sources";
  if (value && *value != found && !(or_more && *value > found))
    throw usage_error("{} = {}, but {} of {} are {}", key, *value, what, place, found);
  if (value) return;
  value = found;
  recipe.origins[key] = {.kind = Origin::Kind::decided, .note = what + " of " + place};
}

/// Takes the facts from samples of a plug-in for a model without tokens.
void take_row_facts(Recipe& recipe, const PluginContent& content) {
  if (const auto* features = content.find(row_field::features_name); features && recipe.model.name == "mlp")
    take(recipe, "model.num_features", recipe.model.num_features, features->row_elements(), "the features", false);
  const auto* targets = content.find(row_field::targets_name);
  const auto labels = std::ranges::find(content.fields, std::string(row_field::labels_name), &BatchField::name);
  if (targets)
    take(recipe, "model.num_labels", recipe.model.num_labels, targets->row_elements(), "the targets", false);
  else if (const auto at = labels - content.fields.begin();
           labels != content.fields.end() && content.classes[static_cast<size_t>(at)] > 0)
    take(recipe, "model.num_labels", recipe.model.num_labels, content.classes[static_cast<size_t>(at)], "the classes",
         true);
  if (!recipe.model.num_labels)
    throw usage_error(
        "data.plugin: the plug-in does not state the number of classes of `labels`; set model.num_labels");
  if (recipe.train.loss) return;
  recipe.train.loss = targets ? "mse" : "cross_entropy";
  recipe.origins["train.loss"] = {.kind = Origin::Kind::decided, .note = targets ? "the targets" : "the labels"};
}

void take_plugin_facts(Recipe& recipe) {
  auto& data = recipe.data;
  const bool tokens = is_language_model(recipe.model.name);
  const auto content = plugin_content(data, tokens ? data.seq_len.value_or(recipe.model.max_seq_len) : 1);
  const std::string gives = content.records ? "records" : tokens ? "samples" : "rows";
  if (data.plugin_gives != "auto" && data.plugin_gives != gives)
    throw usage_error("data.plugin_gives = \"{}\", but the plug-in gives {}", data.plugin_gives, gives);
  data.plugin_gives = gives;
  const Origin decided{.kind = Origin::Kind::decided, .note = "the plug-in"};
  recipe.origins["data.plugin_gives"] = decided;
  if (content.records && !tokens && data.target.empty())
    throw usage_error(
        "data.plugin: the plug-in gives records, and {} needs rows: name the column that it predicts in data.target",
        recipe.model.name);
  if (content.records) return;
  if (!data.target.empty())
    throw usage_error("data.target: the plug-in gives samples with fields, which have no columns");
  if (data.masks_tokens())
    throw usage_error("data.objective = \"masked_lm\" is for data with a tokenizer, and the plug-in gives samples");
  if (!tokens) return take_row_facts(recipe, content);
  const auto most = *std::ranges::max_element(content.classes);
  if (recipe.model.vocab_size || most == 0) return;
  recipe.model.vocab_size = most;
  recipe.origins["model.vocab_size"] = decided;
}

/// Sets what follows from the type of the target.
void take_target_type(Recipe& recipe, const std::string& type) {
  const Origin decided{.kind = Origin::Kind::decided, .note = "the column " + recipe.data.target.front()};
  if (recipe.data.target_type == "auto") recipe.origins["data.target_type"] = decided;
  recipe.data.target_type = type;
  if (recipe.train.loss) return;
  recipe.train.loss = loss_of_target(type);
  recipe.origins["train.loss"] = decided;
}

/// The classes of the data; in the order of `known` if that has the same ones.
std::vector<std::string> in_known_order(std::vector<std::string> classes, const std::vector<std::string>& known) {
  return std::ranges::is_permutation(classes, known) ? known : classes;
}

/// Decides whether samples are pairs of texts, of all sources in the same way.
void take_text_columns(Recipe& recipe) {
  auto& data = recipe.data;
  const auto sources = sources_of(data);
  std::vector<std::optional<Recipe::Data::Columns>> columns;
  const auto is_pair = [&](size_t i) { return columns[i] && columns[i]->contains("text_pair"); };
  for (size_t i = 0; i < sources.size(); ++i) {
    columns.push_back(text_columns(sources[i].data));
    if (is_pair(i) == is_pair(0)) continue;
    const auto& pair = sources[is_pair(i) ? i : 0];
    throw usage_error("data.sources: \"{}\" has pairs of texts (text_pair), and \"{}\" has single texts", pair.name,
                      sources[is_pair(i) ? 0 : i].name);
  }
  if (data.columns && is_pair(0) != data.has_text_pairs())
    throw usage_error("data.columns names {}, and \"{}\" has {}", data.has_text_pairs() ? "two texts" : "one text",
                      sources.front().name, is_pair(0) ? "pairs of texts (text_pair)" : "single texts");
  if (!is_pair(0) || data.columns) return;
  data.columns = columns[0];
  for (size_t i = 0; i < data.sources.size(); ++i) data.sources[i].columns = columns[i];
  recipe.origins["data.columns"] = {.kind = Origin::Kind::decided, .note = "the first record has a column text_pair"};
}

/// Refuses two texts whose types have no rows in the model's table.
void check_types(const Recipe& recipe) {
  const auto sources = sources_of(recipe.data);
  const bool trained = recipe.data.tokenizer == "sentencepiece";  // has one type
  if (!sources.front().data.has_text_pairs() || trained || family_kind(recipe.model.name) != "encoder") return;
  int64_t most = 0;
  for (const auto& part : open_tokenizer(recipe.data, "")->frame(/*pair=*/true))
    most = std::max<int64_t>(most, part.type);
  if (most >= recipe.model.type_vocab_size)
    throw usage_error("model.type_vocab_size = {}: of two texts, the tokenizer gives tokens the types 0 to {}",
                      recipe.model.type_vocab_size, most);
}

void take_text_facts(Recipe& recipe, const std::vector<std::string>& known_labels) {
  auto& data = recipe.data;
  take_text_columns(recipe);
  check_types(recipe);
  const auto training = training_table(data);
  const auto& schema = training->schema;
  const bool classes = schema.target_type == "class";
  take(recipe, "model.num_labels", recipe.model.num_labels, schema.outputs(), classes ? "the labels" : "the targets",
       /*or_more=*/false);
  take_target_type(recipe, schema.target_type);
  const auto named = std::ssize(recipe.model.labels);
  if (named > 0 && named != schema.outputs())
    throw usage_error("model.labels names {}, and data.target names {}", counted(named, "label"),
                      counted(schema.outputs(), "column"));
  if (named > 0) return;
  if (classes) recipe.model.labels = in_known_order(schema.targets.front().classes, known_labels);
  if (schema.target_type == "binary") recipe.model.labels = data.target;
  data.labels = recipe.model.labels;
  recipe.origins["model.labels"] = {.kind = Origin::Kind::decided, .note = "the column " + data.target.front()};
}

/// Classes of images are sorted, unless the model that training starts from has the same ones in another order.
void take_class_order(Recipe& recipe, const std::vector<std::string>& known) {
  if (!recipe.model.labels.empty()) return;
  const auto classes = image_classes(recipe.data);
  if (known == classes || !std::ranges::is_permutation(classes, known)) return;
  recipe.model.labels = recipe.data.labels = known;
  recipe.origins["model.labels"] = {.kind = Origin::Kind::decided, .note = "the order of model.init_from"};
}

}  // namespace

void take_data_facts(Recipe& recipe, const std::vector<std::string>& known_labels) {
  if (recipe.data.is_plugin()) take_plugin_facts(recipe);
  if (recipe.data.labels_texts()) return take_text_facts(recipe, known_labels);
  if (is_language_model(recipe.model.name)) return;
  if (recipe.data.is_images()) {
    take(recipe, "model.num_labels", recipe.model.num_labels, std::ssize(image_classes(recipe.data)), "the classes",
         true);
    recipe.train.loss = "cross_entropy";
    take_class_order(recipe, known_labels);
  }
  if (!recipe.data.is_table()) return;
  const auto training = training_table(recipe.data);
  const auto& schema = training->schema;
  take(recipe, "model.num_features", recipe.model.num_features, schema.inputs(), "the features", /*or_more=*/false);
  take(recipe, "model.num_labels", recipe.model.num_labels, schema.outputs(),
       schema.target_type == "class" ? "the classes" : "the targets", /*or_more=*/schema.target_type == "class");
  take_target_type(recipe, schema.target_type);
}

}  // namespace runner
