#include "strategies/contract/gradient_buckets.hpp"

#include <algorithm>

#include "runner/base/option_table.hpp"

namespace runner {

namespace {

struct BucketOptions {
  double bucket_cap_mb = 25;
};

const OptionTable<BucketOptions>& bucket_options() {
  static const auto table = OptionTable<BucketOptions>().add(
      {.name = "bucket_cap_mb",
       .help = "A bucket of gradients has whole blocks, with at least this number of MiB (the first: 1 MiB).",
       .minimum = 0.001,
       .maximum = 1e9},
      &BucketOptions::bucket_cap_mb);
  return table;
}

}  // namespace

const Option& bucket_cap_option() { return bucket_options().options().front(); }

const std::vector<Option>& options_without_effect() {
  static const std::vector<Option> options = {
      {.name = "find_unused_parameters",
       .default_value = false,
       .help = "Find the parameters that a step did not use.",
       .note = "no effect: gradients that a step did not compute count as zeros in any case"},
      {.name = "gradient_as_bucket_view",
       .default_value = true,
       .help = "Gradients are views of the buckets, which saves the memory of one copy of the gradients.",
       .note = "no effect: gradients are views of the buckets in any case"},
      {.name = "static_graph",
       .default_value = false,
       .help = "The autograd graph is the same in every step.",
       .note = "no effect: the order of reductions is known before the first step"}};
  return options;
}

BucketBytes bucket_bytes(const Job& job) {
  constexpr double mebibyte = 1024 * 1024;
  const auto others = static_cast<int64_t>(bucket_options().read(job.options).bucket_cap_mb * mebibyte);
  return {.first = std::min(static_cast<int64_t>(mebibyte), others), .others = others};
}

}  // namespace runner
