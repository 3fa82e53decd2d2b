#include "runner/inference/sample_batch.hpp"

#include "runner/data/parallel_for.hpp"

namespace runner {

HostBatch sample_batch(const Dataset& data, int64_t first, int64_t end) {
  std::vector<int64_t> samples;
  for (int64_t position = first; position < end; ++position)
    samples.push_back(data.sample_at(0, position, {.shuffle = false, .seed = 0}));
  HostBatch batch(end - first, data.fields_of(samples));
  parallel_for(samples.size(), [&](size_t i) { data.read(samples[i], batch, static_cast<int64_t>(i)); });
  return batch;
}

}  // namespace runner
