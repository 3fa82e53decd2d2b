#include "runner/selection/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <ranges>

#include "runner/base/text.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/pipeline_plan.hpp"
#include "runner/selection/recompute.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

struct HookClaims {
  explicit HookClaims(const Recipe& recipe) : hooks(recipe) {}
  std::mutex mutex;
  lua::HookSet hooks;
};

/// Tells the planner about the hooks of a recipe: the memory that they keep, from `memory` in their files.
/// Sets `hooks` and `own_loss` of the job. Loads the hook files into a Lua state that `hooks` owns; several threads may call it. It
/// is empty if no hook has `memory`. Throws RecipeError; `hooks` throws Error(usage).
void describe_hooks(const Recipe& recipe, Job& described) {
  if (lua::hook_sources(recipe).empty()) return;
  auto claims = std::make_shared<HookClaims>(recipe);
  described.own_loss = claims->hooks.has_loss();
  if (described.own_loss && recipe.train.loss.value_or("cross_entropy") != "cross_entropy") {
    Diagnostic diagnostic{
        recipe.origin("hooks.files"), "contradiction",
        fmt::format("the function `loss` of a hook replaces cross entropy, and the loss is {}", *recipe.train.loss)};
    diagnostic.section = "hooks";
    throw RecipeError({diagnostic});
  }
  described.hooks_in_backward =
      claims->hooks.wants(lua::Moment::on_before_backward) || claims->hooks.wants(lua::Moment::on_after_backward);
  if (!claims->hooks.says_memory()) return;
  described.hooks = [claims](const Job& job, const MemoryParts& parts) -> HookBytes {
    std::lock_guard lock(claims->mutex);
    auto kept = claims->hooks.memory({{"held", parts.stored},
                                      {"trained", parts.held},
                                      {"parameters", job.model->parameter_count()},
                                      {"world_size", job.world_size()},
                                      {"micro_batch_size", job.micro_batch_size},
                                      {"optimizer_states", job.most_states()},
                                      {"element_bytes", std::max<int64_t>(4, bytes_of(job.precision.parameter))}});
    return HookBytes{kept.device, kept.host};
  };
}

/// Factors by which the memory may exceed the prediction (scripts/bench/planner). A plan must fit with this factor.
constexpr double margin_one_rank = 1.015, margin_several_ranks = 1.03;

OptimizerUse use_of(const Recipe::Optimizer& optimizer) {
  const auto* spec = find_optimizer(optimizer.name);
  return {.spec = spec,
          .states = static_cast<int>(spec->state_names(optimizer.momentum).size()),
          .ns_steps = optimizer.ns_steps};
}

int64_t elements_of_base(const ModelSpec& model) {
  int64_t elements = 0;
  for (const auto* parameter : model.parameters()) elements += parameter->of_base ? parameter->numel() : 0;
  return elements;
}

}  // namespace

const char* const own_form = "the recipe's own";

std::string label(const Candidate& candidate) {
  const auto& entry = *candidate.entry;
  auto text = entry.label ? entry.label(candidate.job) : entry.name;
  if (const auto& mesh = candidate.mesh) {
    text += fmt::format(" on {}", to_text(candidate.job.mesh));
    if (mesh->virtual_stages > 1) text += fmt::format(", {} virtual stages", mesh->virtual_stages);
  }
  return candidate.form == own_form ? fmt::format("{}, {}", text, own_form) : text;
}

double pace(const Candidate& candidate) {
  return candidate.step_seconds.value_or(std::numeric_limits<double>::infinity()) / candidate.sequences();
}

std::string memory_needed(const Candidate& candidate) {
  const auto text = format_bytes(candidate.bytes) + " a rank";
  return candidate.host > 0 ? fmt::format("{} and {} of host memory", text, format_bytes(candidate.host)) : text;
}

std::string batch_condition(const Recipe& recipe, const Candidate& candidate) {
  if (recipe.activation_checkpointing.mode != "none" || candidate.every == 1) return "";
  return candidate.every == 0 ? " without recomputation" : " with this recomputation";
}

std::string largest_part(const Candidate& candidate) {
  const auto& memory = candidate.memory;
  const auto& largest = *std::max_element(std::begin(memory_parts), std::end(memory_parts),
                                          [&](auto& a, auto& b) { return memory.*a.bytes < memory.*b.bytes; });
  return fmt::format("{} of {}", format_bytes(memory.*largest.bytes), largest.label);
}

void set_optimizers(const Recipe::Optimizer& optimizer, Job& job) {
  job.group_optimizers.clear();
  job.optimizer_patterns.clear();
  const auto [spec, states, ns_steps] = use_of(optimizer);
  job.optimizer = spec;
  job.optimizer_states = states;
  job.ns_steps = ns_steps;
  for (const auto& group : optimizer.groups) {
    if (!group.own.empty()) job.group_optimizers.push_back(use_of(optimizer_of(optimizer, group)));
    for (const auto& pattern : group.patterns())
      job.optimizer_patterns.emplace_back(pattern, group.own.empty() ? 0 : job.group_optimizers.size());
  }
}

Job base_job(const Recipe& recipe, const ModelSpec& model, const Topology& topology) {
  Job job;
  job.model = &model;
  job.precision = precision_policy(recipe.precision.mode);
  job.accelerator = topology.accelerator;
  if (topology.accelerator.is_cuda()) job.accelerator.workspace_bytes = workspace_bytes(topology.kind);
  job.mesh = topology.mesh();
  job.pipeline = pipeline_of(recipe, job.mesh);
  job.local_size = topology.devices_per_node;
  job.num_nodes = topology.num_nodes;
  set_optimizers(recipe.optimizer, job);
  job.adascale = recipe.optimizer.adascale;
  job.validates = recipe.data.validates() || !recipe.hooks.files.empty();
  describe_hooks(recipe, job);
  if (const auto& schedule = recipe.train.accumulate_grad_batches; schedule && !recipe.train.global_batch_size)
    for (const auto& [epoch, factor] : *schedule) job.accumulation_most = std::max(job.accumulation_most, factor);
  return job;
}

void set_engine(const Entry& entry, Job& job) {
  // Only strategies whose ranks are threads can have it, and other plans take longer to make.
  const auto compiled = entry.ranks_are_threads && entry.plan ? entry.plan(job).compiled : std::nullopt;
  if (compiled && !computes_on_host(compiled->plugin))
    job.accelerator = pjrt_accelerator();
  else if (compiled)
    job.accelerator.platform = pjrt_accelerator().platform;
}

nlohmann::json parts_json(const MemoryParts& memory) {
  nlohmann::json json;
  for (const auto& part : memory_parts) json[part.key] = memory.*part.bytes;
  return json;
}

int64_t checkpoint_bytes(const Job& job, int64_t master_bytes) {
  return job.training_state_bytes(master_bytes) - elements_of_base(*job.model) * master_bytes;
}

int64_t checkpoint_bytes_on_disk(Job job, const ModelSpec& model) {
  job.model = &model;
  return checkpoint_bytes(job, std::max<int64_t>(4, bytes_of(job.precision.parameter)));
}

int64_t snapshot_bytes(const Recipe& recipe, const Entry& entry, const Job& job, const MemoryParts& memory) {
  if (recipe.run.fast_dev_run > 0) return 0;
  const auto& checkpoint = recipe.checkpoint;
  const ParallelPlan plan = entry.plan(job);
  const bool whole = plan.saves_whole;
  bool beside_steps = checkpoint.async && !memory.state_on_disk &&
                      (checkpoint.every_n_steps.value_or(0) > 0 || checkpoint.every || checkpoint.save_top_k > 0);
  if (!whole && !beside_steps) return 0;
  int64_t state = checkpoint_bytes(job, bytes_of(job.precision.parameter));
  // An upper bound of what hooks keep in a checkpoint.
  if (memory.hooks > 0) state += (job.model->parameter_count() - elements_of_base(*job.model)) * 4;
  if (!whole) {
    int64_t own = plan.reducer.replicas_differ ? state : state / job.data_ranks();
    for (const auto& reducer : plan.reducer.bytes) own += reducer.kept;
    return own;
  }
  // `state` is that of a part of the model; at least as much as all of it
  state *= job.model->division.ranks * job.pipeline.ranks;
  if (job.accelerator.own_memory)
    return state / job.local_size;  // only one rank needs it, and limits are equal shares of the node
  return beside_steps ? state : std::max<int64_t>(0, memory.between_steps + state - memory.total());
}

CandidateSearch::CandidateSearch(const Recipe& recipe, const ModelSpec& model, const Topology& topology,
                                 nlohmann::json given)
    : recipe_(recipe),
      model_(model),
      given_(std::move(given)),
      job_(base_job(recipe, model, topology)),
      sizes_(topology.sizes),
      limit_(memory_limit(topology, recipe.devices.memory_limit.value_or(0))),
      batches_(can_divide_batch(recipe, topology.data_ranks()) ? batch_choices(recipe, topology.batch_ranks())
                                                               : std::vector<BatchChoice>()) {
  const int64_t rows_most = micro_batch_tokens_most / std::max<int64_t>(1, model.seq_len);
  while (batches_.size() > 1 && batches_.front().micro_batch_size > rows_most) batches_.erase(batches_.begin());
}

bool CandidateSearch::fits(int64_t bytes, int64_t host_bytes) const {
  double margin = job_.world_size() == 1 ? margin_one_rank : margin_several_ranks;
  auto below = [&](int64_t used, int64_t most) {
    return most == 0 || static_cast<double>(used) * margin <= static_cast<double>(most);
  };
  return below(bytes, limit_.device) && below(host_bytes, limit_.host);
}

Candidate CandidateSearch::refused(const Form& form, const std::string& why) const {
  Candidate candidate;
  candidate.form = form.name;
  candidate.entry = find_strategy(form.strategy)->entry;
  candidate.job = job_;
  auto options = form.options;
  options.update(given_);
  options.update(options_of_groups(recipe_, *candidate.entry));
  candidate.job.options = with_defaults(candidate.entry->options, options);
  candidate.refused = why;
  return candidate;
}

Candidate CandidateSearch::at(const Form& form, const BatchChoice& batch, int64_t every) const {
  Candidate candidate = refused(form, "");
  candidate.every = candidate.every_needed = every;
  Job& job = candidate.job;
  job.micro_batch_size = batch.micro_batch_size;
  job.accumulation = batch.accumulation;
  job.accumulation_most = std::max(job.accumulation_most, batch.accumulation);
  auto checkpointing = recipe_.activation_checkpointing;
  if (every > 0) {
    checkpointing.mode = "every";
    checkpointing.every = every;
  }
  set_recompute(job, checkpointing);
  auto refusal = candidate.entry->refuse(job);
  if (!refusal) refusal = refuse_data_axis(sizes_, *candidate.entry, job);
  if (refusal) {
    candidate.refused = *refusal;
    return candidate;
  }
  set_engine(*candidate.entry, job);
  if (job.pipeline.ranks > 1) {
    candidate.pipeline = std::make_shared<PipelinePlan>(plan_pipeline(recipe_, job, *candidate.entry, limit_));
    job = candidate.pipeline->job_of_rank(job, candidate.pipeline->largest);
  }
  if (!memory_known(*candidate.entry)) {
    candidate.fits = true;  // its memory is not known
    return candidate;
  }
  candidate.memory = candidate.pipeline ? candidate.pipeline->memory.of(candidate.pipeline->largest)
                                        : claimed_memory(*candidate.entry, job);
  candidate.snapshot = snapshot_bytes(recipe_, *candidate.entry, job, candidate.memory);
  candidate.bytes = candidate.memory.total() + limit_.context + (job.accelerator.own_memory ? 0 : candidate.snapshot);
  candidate.host = job.accelerator.own_memory ? candidate.memory.host + candidate.snapshot : 0;
  candidate.fits = fits(candidate.bytes, candidate.host);
  return candidate;
}

Candidate CandidateSearch::largest(const Form& form, int64_t every) const {
  Candidate found = at(form, batches_.back(), every);
  if (!found.fits) return found;
  // Memory grows with the micro-batch, so binary search finds the largest that fits.
  size_t low = 0, high = batches_.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    Candidate candidate = at(form, batches_[middle], every);
    if (!candidate.fits) {
      low = middle + 1;
      continue;
    }
    high = middle;
    found = std::move(candidate);
  }
  return found;
}

std::optional<Candidate> CandidateSearch::larger(const Form& form, int64_t every, int64_t than) const {
  std::optional<Candidate> found;
  for (const auto& batch : batches_ | std::views::reverse) {
    if (batch.micro_batch_size <= than) continue;
    Candidate next = at(form, batch, every);
    if (!next.fits) break;
    found = std::move(next);
  }
  return found;
}

Candidate CandidateSearch::best(const Form& form) const {
  Candidate plain = largest(form, 0);
  if (plain.fits || !plain.refused.empty() || recipe_.activation_checkpointing.mode != "none") return plain;
  // Checkpointing each k-th block: the largest k with which the smallest micro-batch fits.
  const Candidate all = smallest(form);
  if (!all.fits) return all;
  return largest(form, largest_every(form, plain, all));
}

int64_t CandidateSearch::largest_every(const Form& form, const Candidate& none, const Candidate& all) const {
  const int64_t layers = model_.layers();
  // Memory falls with the number of recomputed layers, about in proportion to it.
  const double free = static_cast<double>(limit_.device - all.bytes),
               kept = static_cast<double>(none.bytes - all.bytes);
  const double guess = free < kept ? 1 / (1 - free / kept) : static_cast<double>(layers);
  const auto near = static_cast<int64_t>(guess);
  int64_t fitting = 1, too_many = layers + 1;
  const auto probe = [&](int64_t every) {
    if (fitting < every && every < too_many) (at(form, batches_.back(), every).fits ? fitting : too_many) = every;
  };
  for (const int64_t every : {near, near + 1, near - 1}) probe(every);
  while (fitting + 1 < too_many) probe((fitting + too_many) / 2);
  return fitting;
}

Candidate CandidateSearch::smallest(const Form& form) const {
  return at(form, batches_.back(), recipe_.activation_checkpointing.mode == "none" ? 1 : 0);
}

Candidate fit_named(const Recipe& recipe, const ModelSpec& model, const Topology& topology, const nlohmann::json& given,
                    const Entry& entry) {
  // Only "auto" adds checkpointing. For a named strategy, only the micro-batch is chosen, and options that say "auto".
  const auto fit = [&](const nlohmann::json& options) {
    return CandidateSearch(recipe, model, topology, options).largest({entry.name, entry.name}, 0);
  };
  const auto variants =
      entry.variants ? entry.variants(with_defaults(entry.options, given)) : std::vector<nlohmann::json>();
  if (variants.empty()) return fit(given);
  Candidate found;
  for (const auto& variant : variants) {
    auto options = given;
    options.update(variant);
    found = fit(options);
    if (found.fits || !found.refused.empty()) break;
  }
  return found;
}

}  // namespace runner
