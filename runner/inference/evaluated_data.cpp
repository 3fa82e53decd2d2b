#include "runner/inference/evaluated_data.hpp"

#include "runner/base/error.hpp"
#include "runner/data/named_file.hpp"

namespace runner {

Recipe::Data evaluated_data(const InferenceRequest& request, const StoredModel& stored) {
  auto data = stored.recipe.data;
  if (!request.data.empty()) {
    if (!data.has_rows()) data = settings_for_file(data, request.data);
    data.validation = {request.data};
    data.validation_fraction.reset();
  }
  if (!data.validates())
    throw usage_error("{} has no validation data: --data FILE names the data to evaluate on",
                      request.load.place().of_run() ? "the run's recipe" : "a Hugging Face folder");
  return data;
}

}  // namespace runner
