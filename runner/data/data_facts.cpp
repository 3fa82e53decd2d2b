// What the data determine about the model and the loss.
#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/recipe_builder.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/table_data.hpp"

namespace runner {

namespace {

/// Sets `value` unless the recipe has set it. Throws Error(usage) if that does not fit. `or_more`: a larger value fits.
void take(Recipe& recipe, const std::string& key, std::optional<int64_t>& value, int64_t found, const std::string& what,
          bool or_more) {
  if (value && *value != found && !(or_more && *value > found))
    throw usage_error("{} = {}, but {} of data.train are {}", key, *value, what, found);
  if (value) return;
  value = found;
  recipe.origins[key] = {.kind = Origin::Kind::decided, .note = what + " of data.train"};
}

}  // namespace

void take_data_facts(Recipe& recipe) {
  if (is_language_model(recipe.model.name)) return;
  if (recipe.data.is_images()) {
    take(recipe, "model.num_labels", recipe.model.num_labels, std::ssize(image_classes(recipe.data)), "the classes",
         true);
    recipe.train.loss = "cross_entropy";
  }
  if (!recipe.data.is_table()) return;
  const auto training = training_table(recipe.data);
  const auto& schema = training->schema;
  take(recipe, "model.num_features", recipe.model.num_features, schema.inputs(), "the features", /*or_more=*/false);
  take(recipe, "model.num_labels", recipe.model.num_labels, schema.outputs(),
       schema.target_type == "class" ? "the classes" : "the targets", /*or_more=*/schema.target_type == "class");
  const Origin decided{.kind = Origin::Kind::decided, .note = "the column " + recipe.data.target.front()};
  if (recipe.data.target_type == "auto") recipe.origins["data.target_type"] = decided;
  recipe.data.target_type = schema.target_type;
  if (recipe.train.loss) return;
  recipe.train.loss = loss_of_target(schema.target_type);
  recipe.origins["train.loss"] = decided;
}

}  // namespace runner
