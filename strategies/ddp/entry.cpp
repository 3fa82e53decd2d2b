#include "strategies/ddp/entry.hpp"

#include <algorithm>

#include "strategies/contract/memory.hpp"

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

/// The Reducer's buckets hold all gradients and stay between steps; gradients are views of them, or tensors of their own beside.
class DdpMemory : public WholeCopyMemory {
 public:
  explicit DdpMemory(const Job& job) : WholeCopyMemory(job), views_(job.options.value("gradient_as_bucket_view", true)) {
    int64_t buckets = now_.parameters;
    (views_ ? now_.gradients : now_.communication) = buckets;
    bool compressed = job.options.value("ddp_comm_hook", "none") != "none";
    auto cap = static_cast<int64_t>(job.options.value("bucket_cap_mb", 25.0) * 1024 * 1024);
    if (compressed) compressed_bucket_ = std::min(cap, buckets) * 2 / bytes_of(leaf_);
  }

 protected:
  void micro_batch_begins(bool first, bool last) override {
    WholeCopyMemory::micro_batch_begins(first, last);
    if (last) now_.communication += compressed_bucket_;
  }
  void gradients_arrive(size_t block, int64_t elements) override {
    if (!views_) WholeCopyMemory::gradients_arrive(block, elements);
  }
  bool takes_gradients() const override { return !views_ && WholeCopyMemory::takes_gradients(); }

 private:
  bool views_;
  int64_t compressed_bucket_ = 0;  ///< a bucket in 16 bits, while it is on its way
};

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
  entry.memory = [](const Job& job) { return job.world_size > 1 ? DdpMemory(job).play() : WholeCopyMemory(job).play(); };
  entry.traffic = [](const Job& job) {
    int64_t element = job.options.value("ddp_comm_hook", "none") == "none" ? bytes_of(job.precision.parameter) : 2;
    int64_t bytes = job.model->parameter_count() * element;
    Traffic traffic{"all_reduce", 0, bytes, ring_all_reduce(bytes, job.world_size)};  // calls: as many as buckets
    return std::vector<Traffic>{traffic};
  };
  return entry;
}

}  // namespace runner
