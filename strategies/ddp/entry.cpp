#include "strategies/ddp/entry.hpp"

#include "runner/base/option_table.hpp"
#include "strategies/contract/gradient_buckets.hpp"

namespace runner {

namespace {

std::vector<Alias> ddp_aliases() {
  const std::string native =
      "one process is started for each rank; the spawn, fork and notebook forms differ only in how Python starts its "
      "processes";
  std::vector<Alias> aliases;
  for (std::string base : {"ddp_spawn", "ddp_fork", "ddp_notebook"})
    aliases.push_back({base, nlohmann::json::object(), native});
  for (std::string base : {"ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"})
    for (bool find : {false, true})
      aliases.push_back({base + "_find_unused_parameters_" + (find ? "true" : "false"),
                         {{"find_unused_parameters", find}},
                         base == "ddp" ? "" : native});
  aliases.push_back({"DDPStrategy"});
  aliases.push_back({"DDPSpawnStrategy", nlohmann::json::object(), native});
  const std::string horovod =
      "the same average of gradients, without Horovod's background thread and fusion buffer; unlike Lightning with "
      "Horovod, it does not multiply the learning rate by the number of ranks";
  for (const char* name : {"horovod", "HorovodStrategy"}) aliases.push_back({name, nlohmann::json::object(), horovod});
  const std::string bagua =
      "only Bagua's gradient_allreduce; similar to its other algorithms are lua:topk (compresses gradients), "
      "lua:gossip (averages parameters with neighbours) and lua:local_sgd (averages parameters every few steps)";
  for (const char* name : {"bagua", "BaguaStrategy"}) aliases.push_back({name, nlohmann::json::object(), bagua});
  return aliases;
}

struct DdpOptions {
  std::string ddp_comm_hook = "none";
  nlohmann::json ddp_comm_hook_options = nullptr;
};

/// PowerSGD, by the names of PyTorch's hooks.
std::string refused_hook(const nlohmann::json& hook) {
  const bool power = hook.is_string() && lower(hook.get<std::string>()).find("powersgd") != std::string::npos;
  return power ? "PowerSGD is not implemented; ddp_comm_hook = \"lua:topk\" compresses gradients, too" : "";
}

const OptionTable<DdpOptions>& ddp_options() {
  using Type = Option::Type;
  static const auto table =
      OptionTable<DdpOptions>()
          .add({.name = "find_unused_parameters",
                .type = Type::boolean,
                .default_value = false,
                .help = "Find the parameters that a step did not use.",
                .note = "no effect: gradients that a step did not compute count as zeros in any case"})
          .add({.name = "gradient_as_bucket_view",
                .type = Type::boolean,
                .default_value = true,
                .help = "Gradients are views of the buckets, which saves the memory of one copy of the gradients.",
                .note = "no effect: gradients are views of the buckets in any case"})
          .add({.name = "static_graph",
                .type = Type::boolean,
                .default_value = false,
                .help = "The autograd graph is the same in every step.",
                .note = "no effect: the order of reductions is known before the first step"})
          .add(bucket_cap_option())
          .add(
              {.name = "ddp_comm_hook",
               .type = Type::choice,
               .help = "fp16_compress and bf16_compress reduce gradients in 16 bits: half the bytes, but rounded sums. "
                       "\"lua:FILE.lua\": a Lua function reduces them.",
               .choices = {"none", "fp16_compress", "bf16_compress"},
               .spellings = {{"fp16_compress_hook", "fp16_compress"},
                             {"bf16_compress_hook", "bf16_compress"},
                             {"allreduce_hook", "none"}},
               .takes_script = true,
               .refuses = refused_hook},
              &DdpOptions::ddp_comm_hook)
          .add({.name = "ddp_comm_hook_options",
                .type = Type::table_or_text,
                .help = "Options for the comm hook if it is a Lua file."},
               &DdpOptions::ddp_comm_hook_options);
  return table;
}

}  // namespace

ParallelPlan ddp_plan(const Job& job) {
  const auto [first, others] = bucket_bytes(job);
  ParallelPlan plan = replicated_plan(job, first, others);
  plan.overlap = true;
  plan.reductions_in_flight = std::ssize(plan.units);
  const auto hook = ddp_options().read(job.options).ddp_comm_hook;
  const bool compresses = hook == "fp16_compress" || hook == "bf16_compress";
  plan.own_reducer = hook != "none" && !compresses;
  if (compresses && job.sharing_ranks() > 1)  // one rank sends nothing
    plan.reduce = hook == "fp16_compress" ? DType::float16 : DType::bfloat16;
  return plan;
}

Entry ddp_entry() {
  Entry entry;
  entry.name = "ddp";
  entry.summary =
      "Every rank has a full copy of the model; gradients are all-reduced in buckets, overlapped with backward.";
  entry.aliases = ddp_aliases();
  entry.options = strategy_options(ddp_options().options());
  entry.foreign_names = ddp_foreign_names();
  entry.plan = ddp_plan;
  return entry;
}

}  // namespace runner
