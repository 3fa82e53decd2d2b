#include "strategies/catalog.hpp"

#include <cctype>
#include <list>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/ddp/entry.hpp"
#include "strategies/fsdp/entry.hpp"
#include "strategies/program/program.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/xla/entry.hpp"
#include "strategies/zero/entry.hpp"

namespace runner {

// Entries in strategies/NAME/entry.cpp that have no header, because they are listed only here.
Entry bagua_entry();
Entry colossalai_entry();
Entry dp_entry();
Entry ddp2_entry();
Entry hivemind_entry();
Entry horovod_entry();
Entry hpu_entry();
Entry ipu_entry();
Entry single_entry();

namespace {

/// Completes plans by the parts that all strategies have in common: the pipeline's schedule, units of their own for parameters in NF4, and
/// the predictions of a built-in reducer.
void complete_plans(Entry& entry) {
  entry.plan = [plan = entry.plan](const Job& job) {
    auto made = plan(job);
    made.pipeline = job.pipeline;
    quantize_units(job, made);
    predict_reducer(job, made);
    return made;
  };
}

/// A compiled step has its state on the devices, and a copy of it in host memory (strategies/xla).
void add_host_copy(const std::string& plugin, MemoryParts& parts) {
  const int64_t parameters = parts.parameters, optimizer = parts.optimizer;
  if (!computes_on_host(plugin)) {
    parts.host += parameters + optimizer;
    return;
  }
  parts.parameters += parameters;
  parts.optimizer += optimizer;
  parts.between_steps += parameters + optimizer;
}

/// The plug-in for CPUs joins the computations that its programs separate by barriers: it keeps gathered parameters after forward, and
/// activations that are to be recomputed.
MemoryParts compiled_memory(Job job, ParallelPlan plan) {
  if (computes_on_host(plan.compiled->plugin)) {
    job.recompute.assign(job.model->blocks.size(), false);
    for (auto& unit : plan.units) unit.keep_after_forward = true;
  }
  auto parts = program_memory(job, plan);
  add_host_copy(plan.compiled->plugin, parts);
  return parts;
}

void predict_from_plan(Entry& entry) {
  entry.refuse = [own = entry.refuse, plan = entry.plan](const Job& job) -> std::optional<std::string> {
    if (auto why = own ? own(job) : std::nullopt) return why;
    return refuse_plan(job, plan(job));
  };
  entry.memory = [plan = entry.plan](const Job& job) {
    const auto made = plan(job);
    return made.compiled ? compiled_memory(job, made) : program_memory(job, made);
  };
  entry.traffic = [plan = entry.plan](const Job& job) { return program_traffic(job, plan(job)); };
  entry.host_work = [plan = entry.plan](const Job& job) { return program_host_work(job, plan(job)); };
}

std::vector<Entry> make_catalog() {
  std::vector<Entry> list{
      single_entry(), ddp_entry(),  fsdp_entry(),       zero_entry(),       model_parallel_entry(), pipeline_entry(),
      dp_entry(),     ddp2_entry(), colossalai_entry(), horovod_entry(),    bagua_entry(),          hivemind_entry(),
      hpu_entry(),    ipu_entry(),  xla_entry(),        single_xla_entry(), xla_fsdp_entry()};
  for (auto& entry : list)
    if (entry.plan) {
      complete_plans(entry);
      predict_from_plan(entry);
    }
  return list;
}

}  // namespace

const std::vector<Entry>& catalog() {
  static const std::vector<Entry> list = make_catalog();
  return list;
}

namespace {

struct Learnt {
  std::mutex mutex;
  std::list<Entry> entries;  ///< the newest first
  std::set<const Entry*> forgotten;
};

Learnt& learnt() {
  static Learnt all;
  return all;
}

}  // namespace

const Entry* learn_strategy(Entry entry) {
  std::lock_guard lock(learnt().mutex);
  learnt().entries.push_front(std::move(entry));
  return &learnt().entries.front();
}

void forget_strategy(const std::string& name) {
  std::lock_guard lock(learnt().mutex);
  for (const auto& entry : learnt().entries)
    if (entry.name == name) learnt().forgotten.insert(&entry);
}

MemoryParts claimed_memory(const Entry& entry, const Job& job) {
  MemoryParts parts = entry.memory(job);
  if (!job.hooks) return parts;
  HookBytes kept = job.hooks(job, parts);
  int64_t on_device = (parts.held_on_host ? 0 : kept.device) + (job.accelerator.own_memory ? 0 : kept.host);
  parts.hooks += on_device;
  parts.between_steps += on_device;
  parts.host += kept.device + kept.host - on_device;
  return parts;
}

std::optional<Named> find_strategy(const std::string& given) {
  {
    std::lock_guard lock(learnt().mutex);
    for (const auto& entry : learnt().entries)
      if (entry.name == given && !learnt().forgotten.contains(&entry)) return Named{&entry};
  }
  return find_listed_strategy(given);
}

std::optional<Named> find_listed_strategy(const std::string& given) {
  std::string name = lower(given);
  for (const auto& entry : catalog()) {
    if (entry.name == name) return Named{&entry};
    for (const auto& alias : entry.aliases)
      if (lower(alias.name) == name) return Named{&entry, alias.preset, &alias};
  }
  return std::nullopt;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const auto& entry : catalog()) {
    if (!entry.unavailable.empty()) continue;
    names.push_back(entry.name);
    for (const auto& alias : entry.aliases) names.push_back(alias.name);
  }
  return names;
}

namespace {

/// A name without separators and without the words that all names of ZeRO share: "3" for "ZeRO-3" and
/// "deepspeed_stage_3".
std::string distinctive(const std::string& name) {
  std::string word;
  for (const char c : lower(name))
    if (std::isalnum(static_cast<unsigned char>(c))) word += c;
  for (const std::string shared : {"deepspeed", "zero", "stage"})
    if (word.starts_with(shared)) word.erase(0, shared.size());
  return word;
}

}  // namespace

std::optional<std::string> nearest_strategy(const std::string& given, const std::vector<std::string>& names) {
  const auto word = distinctive(given);
  for (const auto& name : names)
    if (!word.empty() && distinctive(name) == word) return name;
  return nearest(given, names);
}

}  // namespace runner
