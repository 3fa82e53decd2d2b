// The options of `zero`, with the names of DeepSpeed's configuration files.
#pragma once
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// The initialisers are the defaults. zero_option_table() has the help of each option.
struct ZeroOptions {
  int64_t stage = 2;
  std::optional<int64_t> reduce_bucket_size, allgather_bucket_size;
  bool overlap_comm = true, reduce_scatter = true, allgather_partitions = true;

  int64_t stage3_param_persistence_threshold = 100'000;
  std::optional<int64_t> stage3_model_persistence_threshold;
  int64_t stage3_prefetch_bucket_size = 50'000'000;
  int64_t stage3_max_live_parameters = 1'000'000'000, stage3_max_reuse_distance = 1'000'000'000;
  std::optional<int64_t> mics_shard_size;

  std::optional<int64_t> sub_group_size;
  std::optional<std::string> communication_data_type;  ///< fp32 | bf16 | fp16
  double gradient_predivide_factor = 1.0;

  bool offload_optimizer = false, offload_parameters = false;
  std::string offload_optimizer_device = "cpu", offload_params_device = "cpu";  ///< cpu | nvme
  std::optional<std::string> nvme_path;
  bool pin_memory = true;
  int64_t optimizer_buffer_count = 4, params_buffer_count = 5, params_buffer_size = 100'000'000;
  int64_t max_in_cpu = 1'000'000'000;
  int64_t block_size = 1 << 20, queue_depth = 8, thread_count = 1;

  std::optional<int64_t> gradient_accumulation_steps;

  double loss_scale = 0.0, initial_scale_power = 16, min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;

  /// In stages 1 and 2 every rank keeps all parameters, so there is no shard of them to offload.
  bool offloads_parameters() const { return offload_parameters && stage == 3; }
  bool optimizer_on_nvme() const { return offload_optimizer && offload_optimizer_device == "nvme"; }
  bool parameters_on_nvme() const { return offloads_parameters() && offload_params_device == "nvme"; }
};

/// The maximum number of I/O requests in flight.
constexpr int in_flight_most = 256;

const OptionTable<ZeroOptions>& zero_option_table();

}  // namespace runner
