#include "strategies/colossalai/options.hpp"

namespace runner {

namespace {

using Type = Option::Type;
using Options = ColossalOptions;

void add_chunks(OptionTable<Options>& table) {
  table
      .add({.name = "use_chunk",
            .type = Type::boolean,
            .help = "Parameters are sharded in chunks; false is refused, as in Lightning."},
           &Options::use_chunk)
      .add({.name = "chunk_size",
            .type = Type::integer,
            .help = "Elements of a chunk; unset: the size that wastes least is searched.",
            .minimum = 1},
           &Options::chunk_size)
      .add({.name = "min_chunk_size",
            .type = Type::integer,
            .help = "Elements that a chunk has at least. A model with fewer is one chunk, which stays gathered.",
            .minimum = 1},
           &Options::min_chunk_size)
      .add({.name = "chunk_search_range",
            .type = Type::integer,
            .help = "Chunks of up to so many more elements than the smallest one are tried.",
            .minimum = 1},
           &Options::chunk_search_range)
      .add({.name = "chunk_search_n_grids",
            .type = Type::integer,
            .help = "The number of sizes that are tried.",
            .minimum = 1},
           &Options::chunk_search_n_grids);
}

void add_placement(OptionTable<Options>& table) {
  table
      .add({.name = "placement_policy",
            .type = Type::choice,
            .help = "cuda: chunks and optimizer state are on the device. cpu: in host memory. static: as the three "
                    "fractions say. auto: on the device as far as they fit.",
            .choices = {"auto", "cpu", "cuda", "static"}},
           &Options::placement_policy)
      .add({.name = "shard_param_frac",
            .type = Type::number,
            .help = "The part of the chunks that are sharded; the others stay gathered.",
            .minimum = 0,
            .maximum = 1},
           &Options::shard_param_frac)
      .add({.name = "offload_optim_frac",
            .type = Type::number,
            .help = "1: optimizer state is in host memory; 0: on the device.",
            .minimum = 0,
            .maximum = 1},
           &Options::offload_optim_frac)
      .add({.name = "offload_param_frac",
            .type = Type::number,
            .help = "The part of the chunks whose shards are in host memory; it needs offload_optim_frac = 1.",
            .minimum = 0,
            .maximum = 1},
           &Options::offload_param_frac);
}

void add_loss_scale(OptionTable<Options>& table) {
  const auto scale = [&](const char* name, const char* help, double Options::*value) {
    table.add({.name = name, .type = Type::number, .help = help, .minimum = 0, .above_minimum = true}, value);
  };
  scale("initial_scale", "The first loss scale.", &Options::initial_scale);
  scale("min_scale", "The least loss scale.", &Options::min_scale);
  scale("max_scale", "The largest loss scale.", &Options::max_scale);
  table
      .add({.name = "growth_factor",
            .type = Type::number,
            .help = "The loss scale is multiplied by it after `growth_interval` steps without overflow.",
            .minimum = 1,
            .above_minimum = true},
           &Options::growth_factor)
      .add({.name = "backoff_factor",
            .type = Type::number,
            .help = "The loss scale is multiplied by it after an overflow.",
            .minimum = 0,
            .maximum = 0.999,
            .above_minimum = true},
           &Options::backoff_factor);
  table
      .add({.name = "growth_interval",
            .type = Type::integer,
            .help = "Steps without overflow before the loss scale grows.",
            .minimum = 1},
           &Options::growth_interval)
      .add({.name = "hysteresis",
            .type = Type::integer,
            .help = "Overflows since the last growth before the loss scale is lowered.",
            .minimum = 1},
           &Options::hysteresis);
}

}  // namespace

const OptionTable<ColossalOptions>& colossal_options() {
  static const auto table = [] {
    OptionTable<Options> made;
    add_chunks(made);
    add_placement(made);
    add_loss_scale(made);
    return made;
  }();
  return table;
}

LossScalePolicy loss_scale_of(const ColossalOptions& options) {
  return {.initial = options.initial_scale,
          .window = options.growth_interval,
          .hysteresis = options.hysteresis,
          .minimum = options.min_scale,
          .maximum = options.max_scale,
          .growth = options.growth_factor,
          .backoff = options.backoff_factor};
}

}  // namespace runner
