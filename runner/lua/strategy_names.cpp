#include "runner/lua/strategy_names.hpp"

namespace runner::lua {

const std::map<std::string, std::vector<ObjectNames>>& strategy_arguments() {
  static const ObjectNames tensor{
      .name = "tensor",
      .members = {"numel", "rows",    "columns",     "shape",  "norm",    "min",    "is_finite", "histogram", "sum",
                  "mean",  "max",     "logsumexp",   "pow",    "clone",   "exp",    "log",       "abs",       "sqrt",
                  "tanh",  "sigmoid", "to",          "gather", "softmax", "detach", "narrow",    "largest",   "take",
                  "zero_", "scale_",  "log_softmax", "copy_",  "add_",    "lerp_",  "put_",      "index_add_"}};
  static const ObjectNames world{.name = "world",
                                 .members = {"all_gather", "all_gather_async", "all_reduce", "all_reduce_async",
                                             "reduce_scatter", "reduce_scatter_async", "broadcast", "broadcast_async",
                                             "shift", "shift_async", "barrier", "group", "rank", "size"}};
  static const ObjectNames model{.name = "model", .members = {"parameter", "parameter_names"}};
  static const ObjectNames bucket{.name = "bucket",
                                  .members = {"gradients", "parameters", "shard", "index", "numel", "sharded"},
                                  .parts = {{"gradients", tensor}, {"parameters", tensor}, {"shard", tensor}}};
  static const ObjectNames context{.name = "context",
                                   .members = {"kept", "zeros", "buckets", "loss_scale", "model", "step", "world"},
                                   .parts = {{"world", world}, {"model", model}}};
  static const std::map<std::string, std::vector<ObjectNames>> arguments = {{"setup", {context}},
                                                                            {"setup_module", {model, context}},
                                                                            {"reduce", {bucket, context}},
                                                                            {"after_update", {context}}};
  return arguments;
}

}  // namespace runner::lua
