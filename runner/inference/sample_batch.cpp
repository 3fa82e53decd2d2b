#include "runner/inference/sample_batch.hpp"

#include <algorithm>

#include "runner/data/data.hpp"
#include "runner/data/parallel_for.hpp"

namespace runner {

namespace {

/// The samples [first, end).
HostBatch sample_batch(const Dataset& data, int64_t first, int64_t end) {
  std::vector<int64_t> samples;
  for (int64_t position = first; position < end; ++position)
    samples.push_back(data.sample_at(0, position, {.shuffle = false, .seed = 0}));
  HostBatch batch(end - first, data.fields_of(samples));
  parallel_for(samples.size(), [&](size_t i) { data.read(samples[i], batch, static_cast<int64_t>(i)); });
  return batch;
}

}  // namespace

void for_each_batch(const Dataset& data, int64_t wanted, int64_t batch_size,
                    const std::function<void(const HostBatch& batch, int64_t first)>& body,
                    const std::function<void(int64_t done)>& progress) {
  for (int64_t first = 0; first < wanted; first += batch_size) {
    const int64_t end = std::min(first + batch_size, wanted);
    body(sample_batch(data, first, end), first);
    progress(end);
  }
}

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
