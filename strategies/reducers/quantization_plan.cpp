#include "strategies/reducers/quantization_plan.hpp"

namespace runner {

namespace {

/// `row` = 0: a bucket is one row.
BuiltInReducer quantization(int64_t row) {
  const auto message = [row](const FlatLayout& bucket) {
    return quantized_message_bytes(bucket.total, row > 0 ? row : bucket.total);
  };
  BuiltInReducer hook;
  // The values as float32 exist during the encoding. During the decoding those of one rank and their sum do.
  hook.bytes = [=](const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
    const int64_t wide = bucket.total * bytes_of(DType::float32);
    return ReducerPlan::Bytes{
        .held = cast_bytes(bucket, plan) + (1 + job.world_size()) * message(bucket), .start = wide, .finish = 2 * wide};
  };
  hook.traffic = [=](const Job& job, const ParallelPlan& plan) -> std::vector<Traffic> {
    const auto buckets = buckets_of(job, plan);
    int64_t bytes = 0;
    for (const auto& bucket : buckets) bytes += message(bucket);
    return {make_traffic(Collective::all_gather, job.world_size(), std::ssize(buckets), job.world_size() * bytes)};
  };
  return hook;
}

}  // namespace

BuiltInReducer quantization_per_tensor() {
  auto hook = quantization(0);
  hook.name = "quantization_pertensor_hook";
  hook.other_names = {"quantize_per_tensor"};
  hook.about = "Sends gradients as 8-bit integers, with one scale and zero point for each bucket.";
  return hook;
}

BuiltInReducer quantization_per_channel() {
  auto hook = quantization(quantized_row);
  hook.name = "quantization_perchannel_hook";
  hook.other_names = {"quantize_per_channel"};
  hook.about = "Sends gradients as 8-bit integers, with one scale and zero point for each 512 of them.";
  return hook;
}

}  // namespace runner
