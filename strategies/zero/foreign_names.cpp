// Arguments of FairScale's OSS and ShardedDataParallel, and of Lightning's strategies for them.
#include "strategies/zero/entry.hpp"

namespace runner {

namespace {

/// ShardedDataParallel's reduction in float16.
std::optional<ForeignName::Values> communication_dtype(const nlohmann::json& in_16_bits) {
  if (!in_16_bits.is_boolean()) return std::nullopt;
  if (in_16_bits == false) return ForeignName::Values{};
  return ForeignName::Values{{"strategy.communication_data_type", "fp16"}};
}

}  // namespace

std::vector<ForeignName> zero_foreign_names() {
  std::vector<ForeignName> names = {
      {.name = "zero_stage", .key = "strategy.name", .only_suggested = true},
      {.name = "reduce_fp16",
       .key = "strategy.communication_data_type",
       .meaning = communication_dtype,
       .refusal = "it is true or false"},
      {.name = "broadcast_fp16",
       .meaning = ForeignName::one_of({false}),
       .refusal =
           "ranks would get other parameters than the rank that updates them; with precision = \"bf16-mixed\" they "
           "are sent in 16 bits, and masters stay in float32"},
      {.name = "reduce_buffer_size",
       .key = "strategy.reduce_bucket_size",
       .meaning = ForeignName::same_value_of("strategy.reduce_bucket_size"),
       .note = "both are numbers of elements"},
      ForeignName::accepted(
          "sync_models_at_startup",
          "nothing to do: initial values depend only on the seed and the parameter's name, so they are "
          "equal on all ranks"),
      ForeignName::accepted("auto_refresh_trainable", "nothing to do: what is trained does not change during a run"),
      ForeignName::accepted("warn_on_trainable_params_changed",
                            "nothing to do: what is trained does not change during a run"),
      ForeignName::accepted("broadcast_buffer_size", "nothing to do: FairScale does not use it, either"),
      ForeignName::accepted("force_broadcast_object", "nothing to do: every rank writes its part of a checkpoint"),
  };
  for (size_t i = 1; i < names.size(); ++i) names[i].sections = {"strategy"};
  return names;
}

}  // namespace runner
