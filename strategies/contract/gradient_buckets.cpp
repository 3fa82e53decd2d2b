#include "strategies/contract/gradient_buckets.hpp"

#include <algorithm>

namespace runner {

OptionSpec bucket_cap_option() {
  return {.name = "bucket_cap_mb",
          .type = OptionSpec::Type::number,
          .default_value = 25,
          .minimum = 0.001,
          .help = "A bucket of gradients has whole blocks, with at least this number of MiB (the first: 1 MiB)."};
}

BucketBytes bucket_bytes(const Job& job) {
  constexpr double mebibyte = 1024 * 1024;
  const OptionSpec cap = bucket_cap_option();
  // A strategy in Lua may declare the option itself, without a default.
  auto others = static_cast<int64_t>(job.options.value(cap.name, cap.default_value).get<double>() * mebibyte);
  return {.first = std::min(static_cast<int64_t>(mebibyte), others), .others = others};
}

}  // namespace runner
