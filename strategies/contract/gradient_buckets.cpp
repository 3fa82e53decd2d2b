#include "strategies/contract/gradient_buckets.hpp"

#include <algorithm>

namespace runner {

OptionSpec bucket_cap_option() {
  return {.name = "bucket_cap_mb",
          .type = OptionSpec::Type::number,
          .default_value = 25,
          .minimum = 0.001,
          .help = "Size of a gradient bucket in MiB (the first is 1 MiB)."};
}

BucketBytes bucket_bytes(const Job& job) {
  constexpr double mebibyte = 1024 * 1024;
  const OptionSpec cap = bucket_cap_option();
  // A strategy in Lua may declare the option itself, without a default.
  auto others = static_cast<int64_t>(job.options.value(cap.name, cap.default_value).get<double>() * mebibyte);
  return {.first = std::min(static_cast<int64_t>(mebibyte), others), .others = others};
}

std::vector<GradientBucket> gradient_buckets(const Job& job, const std::function<bool(const ParameterSpec&)>& shard) {
  const auto [first, others] = bucket_bytes(job);
  const auto parameters = job.model->parameters();
  std::vector<GradientBucket> buckets;
  struct Open {
    size_t bucket = 0;
    int64_t bytes = 0, limit = 0;
  };
  Open open[2];  // not sharded, sharded
  for (size_t slot = parameters.size(); slot-- > 0;) {
    const bool sharded = shard && shard(*parameters[slot]);
    Open& now = open[sharded];
    if (now.bytes >= now.limit) {
      now = {.bucket = buckets.size(), .limit = buckets.empty() ? first : others};
      buckets.push_back({.slots = {}, .sharded = sharded});
    }
    buckets[now.bucket].slots.push_back(slot);
    now.bytes += parameters[slot]->numel() * bytes_of(job.precision.parameter);
  }
  // A bucket is full when the gradient of its first parameter arrives.
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const auto& a, const auto& b) { return a.slots.back() > b.slots.back(); });
  return buckets;
}

}  // namespace runner
