#include "strategies/zero/options.hpp"

namespace runner {

namespace {

using Type = Option::Type;
using Table = OptionTable<ZeroOptions>;
using Z = ZeroOptions;

constexpr int most_buffers = 65'536;

void add_stage_options(Table& table) {
  table.add({.name = "stage",
             .help = "What is sharded. 1: optimizer state and fp32 masters; 2: also gradients; 3: also parameters.",
             .minimum = 1,
             .maximum = 3},
            &Z::stage);
  table.add({.name = "reduce_bucket_size",
             .help = "Elements of gradients that are reduced together, in whole blocks: a larger block is one bucket. "
                     "Default: the largest block, and on CUDA at least a million per rank. In stage 3 each layer is a "
                     "bucket, and this option applies only to persistent parameters.",
             .minimum = 1},
            &Z::reduce_bucket_size);
  table.add({.name = "allgather_bucket_size",
             .help = "Elements of updated parameters that are gathered together. The same buckets are reduced and "
                     "gathered, so the smaller of the two sizes is used for both.",
             .minimum = 1},
            &Z::allgather_bucket_size);
  table.add({.name = "overlap_comm",
             .help = "Overlap reductions with backward, and in stage 3 gathers with computation. Not possible on CPU."},
            &Z::overlap_comm);
  table.add({.name = "contiguous_gradients",
             .default_value = true,
             .help = "Copy each gradient into its bucket when it is computed.",
             .note = "no effect: gradients are always contiguous in runner"});
  table.add({.name = "round_robin_gradients",
             .default_value = false,
             .help = "Distribute the copying of gradients over ranks.",
             .note = "no effect: every rank has an equal part of every bucket, so all ranks copy at the same time"});
  table.add({.name = "reduce_scatter",
             .help = "true: reduce-scatter, each rank gets the sums of its part. false: all-reduce, every rank gets "
                     "all sums; faster on some networks."},
            &Z::reduce_scatter);
  table.add({.name = "allgather_partitions",
             .help = "true: updated parameters are all-gathered; false: each rank broadcasts its part."},
            &Z::allgather_partitions);
}

void add_stage3_options(Table& table) {
  table.add({.name = "stage3_param_persistence_threshold",
             .help = "Stage 3: parameters with fewer elements stay unsharded on every rank (persistent parameters).",
             .minimum = 0},
            &Z::stage3_param_persistence_threshold);
  table.add({.name = "stage3_model_persistence_threshold",
             .help = "Stage 3: maximum number of elements of persistent parameters.",
             .minimum = 0},
            &Z::stage3_model_persistence_threshold);
  table.add(
      {.name = "stage3_prefetch_bucket_size",
       .help = "Stage 3: maximum number of elements that are gathered in advance (at least the next layer); 0: none.",
       .minimum = 0},
      &Z::stage3_prefetch_bucket_size);
  table.add({.name = "stage3_max_live_parameters",
             .help = "Stage 3: maximum number of elements that stay gathered between forward and backward.",
             .minimum = 0},
            &Z::stage3_max_live_parameters);
  table.add({.name = "stage3_max_reuse_distance",
             .help = "Stage 3: a layer stays gathered after forward if at most this number of elements is used before "
                     "its backward; 0: only the last layer stays gathered.",
             .minimum = 0},
            &Z::stage3_max_reuse_distance);
  table.add(
      {.name = "stage3_gather_16bit_weights_on_model_save",
       .default_value = false,
       .help = "Accepted for compatibility.",
       .note =
           "no effect: checkpoints contain every weight, and `runner export` writes them as one Hugging Face folder"});
  table.add(
      {.name = "mics_shard_size",
       .help = "Shard within groups of this number of ranks (MiCS). Gradients are also all-reduced between groups.",
       .minimum = 1},
      &Z::mics_shard_size);
}

void add_gradient_options(Table& table) {
  table.add({.name = "sub_group_size",
             .help = "Elements that the update processes at a time, if it streams state from NVMe (default 2^20) or "
                     "casts gradients (default 10^9).",
             .minimum = 1,
             .maximum = 1e12},
            &Z::sub_group_size);
  table.add({.name = "communication_data_type",
             .type = Type::choice,
             .help = "Dtype in which gradients are sent and summed. Default: the dtype of computation.",
             .choices = {"fp32", "bf16", "fp16"}},
            &Z::communication_data_type);
  table.add({.name = "prescale_gradients",
             .default_value = false,
             .help = "Divide gradients before their sum instead of after.",
             .note = "no effect: the loss is divided by the tokens of the global batch, so gradients are only summed "
                     "over ranks"});
  table.add({.name = "gradient_predivide_factor",
             .help = "Gradients are divided by this before they are summed and multiplied by it after (avoids overflow "
                     "in fp16).",
             .minimum = 0,
             .above_minimum = true},
            &Z::gradient_predivide_factor);
}

void add_offload_options(Table& table) {
  table.add({.name = "offload_optimizer",
             .help = "Keep optimizer state and masters outside device memory; the CPU runs the update."},
            &Z::offload_optimizer);
  table.add({.name = "offload_optimizer_device",
             .type = Type::choice,
             .help = "Where offload_optimizer keeps them.",
             .choices = {"cpu", "nvme"}},
            &Z::offload_optimizer_device);
  table.add(
      {.name = "offload_parameters",
       .help = "Stage 3: keep the shards of the parameters outside device memory; gathers copy them to the device."},
      &Z::offload_parameters);
  table.add({.name = "offload_params_device",
             .type = Type::choice,
             .help = "Where offload_parameters keeps them.",
             .choices = {"cpu", "nvme"}},
            &Z::offload_params_device);
  table.add({.name = "remote_device",
             .type = Type::choice,
             .help = "Device on which the model is created.",
             .choices = {"cpu", "nvme"},
             .note = "no effect: each rank creates only its shards, in the memory where they are kept"});
  table.add({.name = "nvme_path",
             .help = "Folder on the NVMe disk. A relative path is relative to the file that contains it. The file of "
                     "each rank has no name, so nothing remains after a crash."},
            &Z::nvme_path);
  table.add({.name = "pin_memory", .help = "Pin host memory for offload from the device."}, &Z::pin_memory);
  table.add({.name = "optimizer_buffer_count",
             .help = "Tiles (sub_group_size elements each) in memory when state on NVMe is updated: read in advance, "
                     "in use, or being written.",
             .minimum = 2,
             .maximum = most_buffers},
            &Z::optimizer_buffer_count);
  table.add({.name = "params_buffer_count",
             .help = "Parameters on NVMe: number of layers whose shards are in memory, in use or read in advance.",
             .minimum = 1,
             .maximum = most_buffers},
            &Z::params_buffer_count);
  table.add({.name = "params_buffer_size",
             .help = "Parameters on NVMe: maximum number of elements in a layer's shard.",
             .minimum = 1},
            &Z::params_buffer_size);
  table.add({.name = "max_in_cpu",
             .help = "Parameters on NVMe: elements of each rank's shards that stay in host memory. They are those of "
                     "the first layers.",
             .minimum = 0},
            &Z::max_in_cpu);
  table.add({.name = "block_size",
             .help = "NVMe: bytes of one read or write, a multiple of 4096.",
             .minimum = 4096,
             .maximum = 1 << 30},
            &Z::block_size);
  table.add({.name = "queue_depth",
             .help = "NVMe: reads or writes in flight for each of thread_count threads.",
             .minimum = 1,
             .maximum = in_flight_most},
            &Z::queue_depth);
  table.add({.name = "thread_count",
             .help = "NVMe: thread_count x queue_depth reads or writes are in flight.",
             .minimum = 1,
             .maximum = in_flight_most},
            &Z::thread_count);
  table.add({.name = "single_submit",
             .default_value = false,
             .help = "Submit reads and writes one by one.",
             .note = "no effect: every read or write is a separate call, on a thread that waits for it"});
  table.add({.name = "overlap_events",
             .default_value = true,
             .help = "Submit reads and writes while others complete.",
             .note = "no effect: reads and writes are always submitted while others complete"});
}

void add_configuration_options(Table& table) {
  table.add({.name = "config",
             .type = Type::table_or_text,
             .help = "DeepSpeed's configuration: a JSON file, relative to the recipe, or a table. It is converted to "
                     "options and to keys of other sections. Keys of the recipe must not contradict it."});
  table.add(
      {.name = "gradient_accumulation_steps",
       .help = "Number of micro-batches in a step. train.global_batch_size must be micro-batch x this number x ranks.",
       .minimum = 1},
      &Z::gradient_accumulation_steps);
}

void add_loss_scale_options(Table& table) {
  table.add({.name = "loss_scale", .help = "16-mixed: a fixed loss scale; 0: dynamic.", .minimum = 0}, &Z::loss_scale);
  table.add(
      {.name = "initial_scale_power", .help = "16-mixed: the dynamic scale starts at 2 to this power.", .minimum = 0},
      &Z::initial_scale_power);
  table.add(
      {.name = "loss_scale_window", .help = "16-mixed: steps without overflow before the scale doubles.", .minimum = 1},
      &Z::loss_scale_window);
  table.add({.name = "hysteresis",
             .help = "16-mixed: number of overflows since the last doubling before the scale is halved.",
             .minimum = 1},
            &Z::hysteresis);
  table.add(
      {.name = "consecutive_hysteresis", .help = "16-mixed: a step without overflow resets the count of overflows."},
      &Z::consecutive_hysteresis);
  table.add({.name = "min_loss_scale", .help = "16-mixed: an overflow at this scale ends the run.", .minimum = 0},
            &Z::min_loss_scale);
}

}  // namespace

const OptionTable<ZeroOptions>& zero_option_table() {
  static const Table table = [] {
    Table options;
    add_stage_options(options);
    add_stage3_options(options);
    add_gradient_options(options);
    add_offload_options(options);
    add_configuration_options(options);
    add_loss_scale_options(options);
    return options;
  }();
  return table;
}

}  // namespace runner
