#include "strategies/reducers/power_sgd_plan.hpp"

#include <algorithm>
#include <cmath>

namespace runner {

namespace {

PowerSgdDivision division_of(const Job& job, const ParallelPlan& plan, const FlatLayout& bucket, bool batched) {
  const auto options = power_sgd_options().read(plan.reducer.options);
  if (batched) return divide_as_square(bucket.total, options);
  const auto parameters = job.model->parameters();
  std::vector<BucketItem> items;
  for (const auto& item : bucket.items) items.push_back({item.offset, parameters[item.slot]->shape});
  return divide_by_parameter(items, options);
}

BuiltInReducer make(bool batched) {
  BuiltInReducer hook;
  hook.options = power_sgd_options().options();
  hook.late_start = {.option = "start_powerSGD_iter", .does = "compresses", .first_step = [](const auto& given) {
                       return power_sgd_options().read(given).start_powerSGD_iter + 1;
                     }};
  hook.bytes = [batched](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    const auto options = power_sgd_options().read(plan.reducer.options);
    const auto division = division_of(job, plan, bucket, batched);
    // Factors and errors are float32 or wider, and messages have the dtype of the wire.
    const DType own = plan.gradient == DType::float64 ? DType::float64 : DType::float32;
    const int64_t each = bytes_of(own), sent = bytes_of(plan.reducer.wire);
    ReducerPlan::Bytes bytes{.kept = (division.p_elements + division.q_elements) * each,
                             .held = division.plain_elements * sent};
    if (options.use_error_feedback) bytes.kept += division.matrix_elements * each;
    if (plan.gradient != own) bytes.held += bucket.total * each;
    if (plan.reducer.wire != own) bytes.held += std::max(division.p_elements, division.q_elements) * sent;
    if (batched) bytes.held += division.matrix_elements * each;
    for (const auto& matrix : division.matrices) bytes.finish = std::max(bytes.finish, matrix.elements() * each);
    return bytes;
  };
  hook.traffic = [batched](const Job& job, const ParallelPlan& plan) -> std::vector<Traffic> {
    int64_t calls = 0, elements = 0;
    for (const auto& bucket : buckets_of(job, plan)) {
      const auto division = division_of(job, plan, bucket, batched);
      for (const int64_t count : {division.p_elements, division.q_elements, division.plain_elements}) {
        calls += count > 0;
        elements += count;
      }
    }
    return {make_traffic(Collective::all_reduce, job.world_size(), calls, elements * bytes_of(plan.reducer.wire))};
  };
  return hook;
}

}  // namespace

BuiltInReducer power_sgd() {
  auto hook = make(/*batched=*/false);
  hook.name = "powerSGD_hook";
  hook.other_names = {"powersgd", "power_sgd"};
  hook.about =
      "Sends two narrow factors, P and Q, for each matrix of gradients (Vogels et al., PowerSGD, NeurIPS 2019).";
  return hook;
}

BuiltInReducer batched_power_sgd() {
  auto hook = make(/*batched=*/true);
  hook.name = "batched_powerSGD_hook";
  hook.other_names = {"batched_powersgd", "batched_power_sgd"};
  hook.about = "PowerSGD of each bucket as one square matrix: faster, and less accurate.";
  return hook;
}

const OptionTable<PowerSgdOptions>& power_sgd_options() {
  using Type = Option::Type;
  using Options = PowerSgdOptions;
  static const auto table =
      OptionTable<Options>()
          .add({.name = "matrix_approximation_rank",
                .help = "Rank of the factors P and Q whose product replaces a matrix of gradients.",
                .minimum = 1},
               &Options::matrix_approximation_rank)
          .add({.name = "start_powerSGD_iter",
                .help = "Steps with an uncompressed all-reduce before compression begins.",
                .minimum = 0},
               &Options::start_powerSGD_iter)
          .add({.name = "min_compression_rate",
                .help = "A matrix is compressed if this makes it more than this many times smaller.",
                .minimum = 0},
               &Options::min_compression_rate)
          .add({.name = "use_error_feedback", .help = "Each rank adds its compression error to its next gradients."},
               &Options::use_error_feedback)
          .add({.name = "warm_start", .help = "Q starts from that of the last step, not from random values."},
               &Options::warm_start)
          .add({.name = "orthogonalization_epsilon",
                .help = "Added to the norm that divides a column. No effect in float32 with a rank above 2, where a QR "
                        "decomposition is used.",
                .minimum = 0},
               &Options::orthogonalization_epsilon)
          .add({.name = "random_seed",
                .help = "Seed of the random values that Q starts from; equal on all ranks.",
                .minimum = 0,
                .maximum = 4294967295.0},
               &Options::random_seed)
          .add({.name = "compression_stats_logging_frequency",
                .type = Type::integer,
                .default_value = 10'000,
                .help = "Steps between two reports of the compression rate.",
                .minimum = 1,
                .note = "no effect: `runner recommend` and `runner show` print what a rank sends in a step"})
          .add({.name = "batch_tensors_with_same_shape",
                .default_value = false,
                .help = "Multiplies matrices of the same shape together.",
                .note = "no effect: matrices are multiplied one after the other"});
  return table;
}

PowerSgdDivision divide_by_parameter(const std::vector<BucketItem>& items, const PowerSgdOptions& options) {
  PowerSgdDivision division;
  for (const auto& item : items) {
    int64_t elements = 1;
    for (const int64_t size : item.shape) elements *= size;
    const int64_t rows = item.shape.empty() ? 1 : item.shape.front(), columns = rows > 0 ? elements / rows : 0;
    const int64_t rank = std::min({rows, columns, options.matrix_approximation_rank});
    const auto compressed = static_cast<double>((rows + columns) * rank);
    if (compressed * options.min_compression_rate < static_cast<double>(elements)) {
      division.matrices.push_back({.offset = item.offset, .rows = rows, .columns = columns, .rank = rank});
      division.p_elements += rows * rank;
      division.q_elements += columns * rank;
      division.matrix_elements += elements;
    } else {
      division.plain.push_back({.offset = item.offset, .count = elements});
      division.plain_elements += elements;
    }
  }
  return division;
}

PowerSgdDivision divide_as_square(int64_t elements, const PowerSgdOptions& options) {
  auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(elements))));
  while (side * side < elements) ++side;
  const int64_t rank = std::min(side, options.matrix_approximation_rank);
  return {.matrices = {{.offset = 0, .rows = side, .columns = side, .rank = rank}},
          .p_elements = side * rank,
          .q_elements = side * rank,
          .matrix_elements = side * side};
}

}  // namespace runner
