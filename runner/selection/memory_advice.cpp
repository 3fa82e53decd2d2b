#include "runner/selection/memory_advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/selection/rules.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

/// A change is listed if it saves at least this part.
constexpr double worth_naming = 0.03;

class WaySearch {
 public:
  WaySearch(const Entry& entry, const Job& job) : now_(claimed_memory(entry, job).total()) {}

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
void consider_micro_batch(WaySearch& search, const Entry& entry, const Job& job) {
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

void consider_recompute(WaySearch& search, const Entry& entry, const Job& job) {
  Job recomputed = job;
  recomputed.recompute.assign(job.model->blocks.size(), false);
  for (size_t i = 0; i < recomputed.recompute.size(); ++i)
    recomputed.recompute[i] = job.model->blocks[i].kind == BlockKind::transformer;
  if (recomputed.recompute != job.recompute)
    search.consider("activation_checkpointing = \"all\"",
                    "one more forward pass for each backward pass, about a third more compute", entry, recomputed);
}

void consider_mixed_precision(WaySearch& search, const Entry& entry, const Job& job) {
  if (job.precision.autocast() || job.precision.compute != DType::float32 || job.model->converts()) return;
  Job mixed = job;
  mixed.precision = precision_policy("bf16-mixed");
  search.consider("precision = \"bf16-mixed\"", "products are rounded to bfloat16, so the losses differ a little",
                  entry, mixed);
}

void consider_loss_chunk(WaySearch& search, const Entry& entry, const Job& job) {
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

/// The change in TOML: `strategy = NAME`, with the options that the name does not set.
std::string change_text(const std::string& name, const nlohmann::json& options) {
  std::string text;
  for (const auto& [option, value] : options.items())
    text += (text.empty() ? "" : ", ") + option + " = " + toml_value(value);
  return text.empty() ? "strategy = \"" + name + "\"" : fmt::format("strategy = {{name = \"{}\", {}}}", name, text);
}

/// A change to a form of the rules, for jobs on several ranks that do not run it or its twin. With the same strategy, only the
/// options that differ change.
void consider_form(WaySearch& search, const Entry& entry, const Job& job, const Saving& saving) {
  const auto& form = rule_book().form(saving.form);
  const Entry& other = *find_strategy(form.strategy)->entry;
  auto runs = [&](const Form& running) {
    const auto& options = running.options.items();
    return entry.name == running.strategy && std::all_of(options.begin(), options.end(), [&](const auto& option) {
             return job.options.value(option.key(), nlohmann::json()) == option.value();
           });
  };
  if (job.data_ranks() == 1 || runs(form) || (!form.twin.empty() && runs(rule_book().form(form.twin)))) return;
  Job sharded = job;
  if (&entry != &other) {
    nlohmann::json options = form.options, set = nlohmann::json::object();
    sharded.options = with_defaults(other.options, options);
    for (const auto& [name, value] : options.items())  // defaults need not be written
      if (find_option(other.options, name)->default_value != value) set[name] = value;
    search.consider(change_text(form.strategy, set), saving.price, other, sharded);
    return;
  }
  std::vector<std::string> changes;
  for (const auto& [name, value] : form.options.items())
    changes.push_back(fmt::format("strategy.{} = {}", name, toml_value(value)));
  sharded.options.update(form.options);
  search.consider(join(changes, ", "), saving.price_of_options, other, sharded);
}

/// A change to a name, for example of a strategy with offloading. A new name drops the options that are set, so only the
/// options in the change count.
void consider_name(WaySearch& search, const Job& job, const Saving& saving) {
  auto named = find_strategy(saving.name);
  nlohmann::json options = named->preset;
  options.update(saving.options);
  Job changed = job;
  changed.options = with_defaults(named->entry->options, options);
  search.consider(change_text(saving.name, saving.options), saving.price, *named->entry, changed);
}

}  // namespace

std::vector<WayOut> ways_out_of_memory(const Entry& entry, const Job& job) {
  if (!memory_known(entry)) return {};
  WaySearch search(entry, job);
  consider_loss_chunk(search, entry, job);
  consider_micro_batch(search, entry, job);
  const bool of_libtorch = plugin_of_devices(job.options).empty();  // others have no strategy of the rules
  for (const auto& saving : rule_book().savings)
    if (!saving.form.empty() && of_libtorch) consider_form(search, entry, job, saving);
  consider_recompute(search, entry, job);
  consider_mixed_precision(search, entry, job);
  for (const auto& saving : rule_book().savings)
    if (!saving.name.empty() && of_libtorch && (saving.only != "device_memory" || job.accelerator.own_memory))
      consider_name(search, job, saving);
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
