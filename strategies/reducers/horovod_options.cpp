#include "strategies/reducers/horovod_options.hpp"

namespace runner {

const OptionTable<HorovodOptions>& horovod_options() {
  using Type = Option::Type;
  using Options = HorovodOptions;
  static const auto table =
      OptionTable<Options>()
          .add({.name = "op",
                .type = Type::choice,
                .help =
                    "average: of gradients. sum: gradients are multiplied by the number of ranks. adasum: combines the "
                    "updates of ranks, each made from its own rows.",
                .choices = {"average", "sum", "adasum"},
                .spellings = {{"hvd.average", "average"}, {"hvd.sum", "sum"}, {"hvd.adasum", "adasum"}}},
               &Options::op)
          .add({.name = "compression",
                .type = Type::choice,
                .help = "What is sent in float16: gradients, or the updates of adasum.",
                .choices = {"none", "fp16"},
                .spellings = {{"compression.none", "none"},
                              {"compression.fp16", "fp16"},
                              {"hvd.compression.none", "none"},
                              {"hvd.compression.fp16", "fp16"}}},
               &Options::compression)
          .add({.name = "gradient_predivide_factor",
                .type = Type::number,
                .help = "Gradients are divided by it before their sum, and multiplied after it.",
                .minimum = 0,
                .above_minimum = true},
               &Options::gradient_predivide_factor)
          .add({.name = "hierarchical",
                .type = Type::boolean,
                .help = "Gradients are summed inside each node, and then over the nodes. With adasum: updates are "
                        "averaged in each node, and nodes are combined."},
               &Options::hierarchical)
          .add(
              {.name = "scale_learning_rate",
               .type = Type::boolean,
               .help =
                   "Multiplies learning rates by the number of ranks, as Lightning does. With adasum: by the ranks of "
                   "a node if it is hierarchical, and otherwise not. With sum: not, because gradients are multiplied."},
              &Options::scale_learning_rate);
  return table;
}

}  // namespace runner
