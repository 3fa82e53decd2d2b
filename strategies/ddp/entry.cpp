#include "strategies/ddp/entry.hpp"

#include <algorithm>
#include <utility>

#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/contract/memory.hpp"

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

/// The Reducer's buckets contain all gradients and exist between steps. Gradients are views of the buckets, or
/// additional tensors. During its reduction, a compressed bucket has an additional 16-bit copy.
class DdpMemory : public WholeCopyMemory {
 public:
  DdpMemory(const Job& job, const DdpPlan& plan)
      : WholeCopyMemory(job),
        views_(plan.gradient_as_bucket_view),
        wire_bytes_(plan.wire == leaf_ ? 0 : bytes_of(plan.wire)) {
    (views_ ? now_.gradients : now_.communication) = now_.parameters;
    for (const auto& bucket : plan.buckets) {
      buckets_.push_back(0);
      for (size_t slot : bucket) buckets_.back() += elements_[slot];
    }
  }

 protected:
  void micro_batch_begins(bool first, bool last) override {
    WholeCopyMemory::micro_batch_begins(first, last);
    reduces_ = last;
    sent_ = filled_ = delivered_ = 0;
  }
  void gradient_arrives(size_t slot) override {
    if (!views_) WholeCopyMemory::gradient_arrives(slot);
    delivered_ += elements_[slot];
    send();
  }
  void block_ends(size_t, bool) override { send(); }
  bool takes_gradients() const override { return !views_ && WholeCopyMemory::takes_gradients(); }

 private:
  /// Simulates the reduction of the buckets that are full.
  void send() {
    now_.communication -= std::exchange(compressed_, 0);
    for (; reduces_ && sent_ < buckets_.size() && filled_ + buckets_[sent_] <= delivered_; ++sent_) {
      filled_ += buckets_[sent_];
      compressed_ = std::max(compressed_, buckets_[sent_] * wire_bytes_);
    }
    now_.communication += compressed_;
  }

  bool views_, reduces_ = false;
  int64_t wire_bytes_;            ///< bytes of an element of a compressed bucket; 0: no compression
  std::vector<int64_t> buckets_;  ///< elements of each
  size_t sent_ = 0;
  int64_t filled_ = 0, delivered_ = 0, compressed_ = 0;
};

std::vector<Traffic> ddp_traffic(const Job& job) {
  if (job.world_size == 1) return {};
  DdpPlan plan = ddp_plan(job);
  auto calls = static_cast<int64_t>(plan.buckets.size());
  int64_t bytes = job.model->parameter_count() * bytes_of(plan.wire);
  if (plan.find_unused_parameters && !plan.static_graph) {
    ++calls;  // the Reducer sums one int32 for each parameter: the number of ranks that used it
    bytes += static_cast<int64_t>(job.model->parameters().size() * sizeof(int32_t));
  }
  return {make_traffic(Collective::all_reduce, job.world_size, calls, bytes)};
}

}  // namespace

DdpPlan ddp_plan(const Job& job) {
  DdpPlan plan;
  const auto [first, others] = bucket_bytes(job);
  plan.first_bucket_bytes = first;
  plan.bucket_bytes = others;
  for (auto& bucket : gradient_buckets(job)) plan.buckets.push_back(std::move(bucket.slots));
  const auto& hook = job.options.at("ddp_comm_hook");
  plan.wire = hook == "fp16_compress"   ? DType::float16
              : hook == "bf16_compress" ? DType::bfloat16
                                        : job.precision.parameter;
  plan.find_unused_parameters = job.options.at("find_unused_parameters");
  plan.gradient_as_bucket_view = job.options.at("gradient_as_bucket_view");
  plan.static_graph = job.options.at("static_graph");
  return plan;
}

Entry ddp_entry() {
  using Type = OptionSpec::Type;
  Entry entry;
  entry.name = "ddp";
  entry.summary =
      "Every rank has a full copy of the model; gradients are all-reduced in buckets, overlapped with backward.";
  entry.aliases = ddp_aliases();
  entry.options = {
      {.name = "find_unused_parameters",
       .type = Type::boolean,
       .default_value = false,
       .help = "Find the parameters that a step did not use."},
      {.name = "gradient_as_bucket_view",
       .type = Type::boolean,
       .default_value = true,
       .help = "Gradients are views of the buckets, which saves the memory of one copy of the gradients."},
      {.name = "static_graph",
       .type = Type::boolean,
       .default_value = false,
       .help = "The autograd graph is the same in every step."},
      bucket_cap_option(),
      {.name = "ddp_comm_hook",
       .type = Type::choice,
       .default_value = "none",
       .choices = {"none", "fp16_compress", "bf16_compress"},
       .help = "fp16_compress and bf16_compress reduce gradients in 16 bits: half the bytes, but rounded sums. "
               "\"lua:FILE.lua\": a Lua function reduces them.",
       .spellings = {{"fp16_compress_hook", "fp16_compress"},
                     {"bf16_compress_hook", "bf16_compress"},
                     {"allreduce_hook", "none"}}},
      {.name = "ddp_comm_hook_options", .type = Type::table, .help = "Options for the comm hook if it is a Lua file."},
  };
  entry.refuse = [](const Job&) -> std::optional<std::string> { return std::nullopt; };
  entry.memory = [](const Job& job) {
    return job.world_size > 1 ? DdpMemory(job, ddp_plan(job)).play() : WholeCopyMemory(job).play();
  };
  entry.traffic = ddp_traffic;
  return entry;
}

}  // namespace runner
