#include "runner/selection/batch_fields.hpp"

#include <fmt/format.h>

namespace runner {

void check_batch_fields(const Recipe& recipe, const ModelSpec& model, const std::vector<BatchField>& provided,
                        std::vector<Diagnostic>& diagnostics) {
  const auto missing = missing_fields(model.batch, provided);
  if (missing.empty()) return;
  diagnostics.push_back(
      {.place = recipe.origin("data.format"),
       .code = "missing-field",
       .message = fmt::format("the model {} needs {} for each sample, and data.format = \"{}\" provides {}",
                              model.family, describe(missing), recipe.data.format, describe(provided)),
       .other = recipe.origin("model.name"),
       .other_message = "the model is chosen here",
       .section = "data"});
}

}  // namespace runner
