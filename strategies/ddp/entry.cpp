#include "strategies/ddp/entry.hpp"

namespace runner {

namespace {

std::vector<Alias> ddp_aliases() {
  const std::string native = "a native runner starts one process a rank whatever the name says; spawn, fork and notebook forms "
                             "differ only in how Python starts its processes";
  std::vector<Alias> aliases;
  for (std::string base : {"ddp_spawn", "ddp_fork", "ddp_notebook"}) aliases.push_back({base, nlohmann::json::object(), native});
  for (std::string base : {"ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"})
    for (bool find : {false, true})
      aliases.push_back({base + "_find_unused_parameters_" + (find ? "true" : "false"), {{"find_unused_parameters", find}},
                         base == "ddp" ? "" : native});
  return aliases;
}

}  // namespace

Entry ddp_entry() {
  using Type = OptionSpec::Type;
  Entry entry;
  entry.name = "ddp";
  entry.summary = "A full copy of the model on every rank; gradients are all-reduced in buckets, overlapped with backward.";
  entry.aliases = ddp_aliases();
  entry.options = {
      {"find_unused_parameters", Type::boolean, false, {}, {}, "Look for parameters that a step did not use."},
      {"gradient_as_bucket_view", Type::boolean, true, {}, {}, "Gradients are views of the buckets: saves one copy of them."},
      {"static_graph", Type::boolean, false, {}, {}, "The graph never changes between steps."},
      {"bucket_cap_mb", Type::number, 25, {}, 0.001, "Size of a gradient bucket in MiB (the first is 1 MiB)."},
      {"ddp_comm_hook", Type::choice, "none", {"none", "fp16_compress", "bf16_compress"}, {},
       "Send gradients in 16 bits: half the bytes, rounded sums."},
  };
  entry.refuse = [](const Job&) -> std::optional<std::string> { return std::nullopt; };
  entry.memory = [](const Job& job) {
    MemoryParts parts;
    int64_t bytes = job.model->parameter_count() * bytes_of(job.precision.parameter);
    parts.parameters = bytes;
    parts.gradients = bytes;
    parts.optimizer = bytes * job.optimizer_states;
    if (!job.options.value("gradient_as_bucket_view", true)) parts.communication += bytes;
    if (job.options.value("ddp_comm_hook", "none") != "none") parts.communication += bytes / bytes_of(job.precision.parameter) * 2;
    parts.activations = activation_bytes(job);
    return parts;
  };
  entry.traffic = [](const Job& job) {
    int64_t element = job.options.value("ddp_comm_hook", "none") == "none" ? bytes_of(job.precision.parameter) : 2;
    int64_t bytes = job.model->parameter_count() * element;
    Traffic traffic{"all_reduce", 0, bytes, ring_all_reduce(bytes, job.world_size)};  // calls: as many as buckets
    return std::vector<Traffic>{traffic};
  };
  return entry;
}

}  // namespace runner
