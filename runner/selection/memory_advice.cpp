#include "runner/selection/memory_advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// A change is listed if it saves at least this part.
constexpr double worth_naming = 0.03;

class Search {
 public:
  Search(const Entry& entry, const Job& job) : now_(claimed_memory(entry, job).total()) {}

  void consider(const std::string& change, const std::string& price, const Entry& entry, const Job& job) {
    if (entry.refuse && entry.refuse(job)) return;
    int64_t saved = now_ - claimed_memory(entry, job).total();
    if (static_cast<double>(saved) >= worth_naming * static_cast<double>(now_)) ways_.push_back({change, price, saved});
  }

  std::vector<WayOut> ways() const { return ways_; }

 private:
  int64_t now_;
  std::vector<WayOut> ways_;
};

/// The largest smaller micro-batch that divides the rank's share of the global batch.
void consider_micro_batch(Search& search, const Entry& entry, const Job& job) {
  int64_t share = job.micro_batch_size * job.accumulation;
  for (int64_t size = job.micro_batch_size / 2; size >= 1; --size) {
    if (share % size != 0) continue;
    Job smaller = job;
    smaller.micro_batch_size = size;
    smaller.accumulation = share / size;
    search.consider(fmt::format("train.micro_batch_size = {}", size),
                    "the global batch stays the same, in more micro-batches", entry, smaller);
    return;
  }
}

void consider_recompute(Search& search, const Entry& entry, const Job& job) {
  Job recomputed = job;
  recomputed.recompute.assign(job.model->blocks.size(), false);
  for (size_t i = 0; i < recomputed.recompute.size(); ++i)
    recomputed.recompute[i] = job.model->blocks[i].kind == BlockKind::transformer;
  if (recomputed.recompute != job.recompute)
    search.consider("activation_checkpointing = \"all\"",
                    "one more forward pass for each backward pass, about a third more compute", entry, recomputed);
}

void consider_mixed_precision(Search& search, const Entry& entry, const Job& job) {
  if (job.precision.autocast() || job.precision.compute != DType::float32) return;
  Job mixed = job;
  mixed.precision = precision_policy("bf16-mixed");
  search.consider("precision = \"bf16-mixed\"", "products are rounded to bfloat16, so the losses differ a little",
                  entry, mixed);
}

void consider_loss_chunk(Search& search, const Entry& entry, const Job& job) {
  constexpr int64_t chunk = 256;
  int64_t tokens = job.micro_batch_size * job.model->seq_len, now = job.model->loss_chunk_tokens;
  if (std::min(now > 0 ? now : tokens, tokens) <= chunk) return;
  ModelSpec model = *job.model;
  model.loss_chunk_tokens = chunk;
  Job chunked = job;
  chunked.model = &model;
  search.consider(fmt::format("model.loss_chunk_tokens = {}", chunk), "logits of fewer tokens are in memory at once",
                  entry, chunked);
}

void consider_sharding(Search& search, const Entry& entry, const Job& job) {
  const Entry& fsdp = *find_strategy("fsdp")->entry;
  const bool parameters_sharded = entry.name == "zero" && job.options.at("stage") == 3;
  if (job.world_size == 1 || parameters_sharded) return;
  Job sharded = job;
  if (entry.name != "fsdp") {
    sharded.options = with_defaults(fsdp.options, nlohmann::json::object());
    search.consider("strategy = \"fsdp\"", "parameters are gathered for each use, 50 % more bytes on the wire", fsdp,
                    sharded);
  } else if (job.options.at("sharding_strategy") != "FULL_SHARD") {
    sharded.options["sharding_strategy"] = "FULL_SHARD";
    search.consider("strategy.sharding_strategy = \"FULL_SHARD\"", "parameters are gathered twice", fsdp, sharded);
  }
}

/// Offload to host memory and to a disk, the most expensive change. A new strategy name drops the options that are set,
/// so only the options in the change count.
void consider_offload(Search& search, const Job& job) {
  auto consider = [&](const std::string& alias, const nlohmann::json& more, const std::string& change,
                      const std::string& price) {
    auto named = find_strategy(alias);
    nlohmann::json options = named->preset;
    options.update(more);
    Job offloaded = job;
    offloaded.options = with_defaults(named->entry->options, options);
    search.consider(change, price, *named->entry, offloaded);
  };
  if (job.accelerator.own_memory)
    consider("deepspeed_stage_3_offload", nlohmann::json::object(), "strategy = \"deepspeed_stage_3_offload\"",
             "the update runs on the CPU");
  consider("deepspeed_stage_3_offload_nvme",
           {{"max_in_cpu", 0}, {"nvme_path", "/"}, {"stage3_param_persistence_threshold", 0}},
           "strategy = {name = \"deepspeed_stage_3_offload_nvme\", max_in_cpu = 0, "
           "stage3_param_persistence_threshold = 0, nvme_path = \"FOLDER\"}",
           "parameters and optimizer state pass through a disk in every step");
}

}  // namespace

std::vector<WayOut> ways_out_of_memory(const Entry& entry, const Job& job) {
  if (!memory_known(entry)) return {};
  Search search(entry, job);
  consider_loss_chunk(search, entry, job);
  consider_micro_batch(search, entry, job);
  consider_sharding(search, entry, job);
  consider_recompute(search, entry, job);
  consider_mixed_precision(search, entry, job);
  consider_offload(search, job);
  return search.ways();
}

std::string memory_advice(const Entry& entry, const Job& job) {
  if (!memory_known(entry))
    return fmt::format("the use of memory is not known: the file of `{}` has no function `memory`", entry.name);
  MemoryParts parts = claimed_memory(entry, job);
  std::vector<MemoryPart> largest_first(std::begin(memory_parts), std::end(memory_parts));
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](const auto& a, const auto& b) { return parts.*a.bytes > parts.*b.bytes; });
  std::vector<std::string> words;
  for (const auto& part : largest_first)
    if (parts.*part.bytes > 0) words.push_back(fmt::format("{} {}", part.label, format_bytes(parts.*part.bytes)));
  std::string text =
      fmt::format("a step of this recipe needs {} a rank: {}", format_bytes(parts.total()), join(words, ", "));
  auto ways = ways_out_of_memory(entry, job);
  if (ways.empty()) return text + "; no change would need much less";
  text += "\npossible changes, cheapest first:";
  for (const auto& way : ways)
    text += fmt::format("\n  {}  (saves {}; {})", way.change, format_bytes(way.saved_bytes), way.price);
  return text;
}

}  // namespace runner
