// `pipeline`: the ranks that the recipe's other axes leave over are stages of consecutive blocks. The data axis is replicated as by ddp.
#include "strategies/contract/with_options.hpp"
#include "strategies/ddp/entry.hpp"

namespace runner {

Entry pipeline_entry() {
  Entry entry;
  entry.name = "pipeline";
  entry.summary = "Each rank computes some of the blocks of the model, for one micro-batch after the other.";
  entry.aliases = {{"pp"}};
  entry.own_axis = Axis::pipeline;
  entry.plan = [](const Job& job) {
    Job replicated = job;
    replicated.options = with_defaults(ddp_entry().options, nlohmann::json::object());
    return ddp_plan(replicated);
  };
  return entry;
}

}  // namespace runner
