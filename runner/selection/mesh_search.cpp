#include "runner/selection/mesh_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include "runner/base/text.hpp"
#include "runner/config/divisors.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/mesh_estimate.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/pipeline_plan.hpp"

namespace runner {

namespace {

constexpr int virtual_stages_tried[] = {1, 2, 3, 4, 6, 8};
/// Every, each second and each fourth layer.
constexpr int64_t recomputations_tried[] = {0, 4, 2, 1};
constexpr int64_t least_tokens_of_rank = 8192;

class Search {
 public:
  Search(const SelectionRequest& request, const StepClock& clock, const std::vector<Form>& forms)
      : request_(request), clock_(clock), forms_(forms) {}

  std::vector<Candidate> best(size_t most) {
    list_trials();
    std::ranges::stable_sort(trials_, {}, &MeshTrial::seconds);
    // An estimate is not exact, so one more than asked for is planned.
    constexpr size_t more = 1, most_plans = 24;
    std::vector<Candidate> found;
    std::set<std::tuple<int, int, int>> planned;  // sizes of meshes that have a candidate
    size_t plans = 0;
    for (const auto& trial : trials_) {
      if (found.size() == most + more || plans == most_plans) break;
      if (planned.contains({trial.tensor, trial.context, trial.pipeline})) continue;
      ++plans;
      auto candidate = plan(trial);
      if (!candidate || !candidate->fits) continue;
      planned.insert({trial.tensor, trial.context, trial.pipeline});
      found.push_back(std::move(*candidate));
    }
    std::ranges::stable_sort(
        found, {}, [](const Candidate& one) { return one.step_seconds ? *one.step_seconds / one.sequences() : 0; });
    if (found.size() > most) found.resize(most);
    return found;
  }

 private:
  void list_trials() {
    const auto& topology = request_.topology;
    const int64_t ranks = topology.world_size();
    const auto blocks = static_cast<int64_t>(request_.model->blocks.size());
    for (const int64_t tensor : divisors(topology.devices_per_node, topology.devices_per_node)) {
      if (tensor > 1 && refuse_division(request_.recipe, static_cast<int>(tensor))) continue;
      for (const int64_t context : context_sizes(ranks / tensor, static_cast<int>(tensor)))
        for (const int64_t pipeline : divisors(ranks / tensor / context, blocks))
          if (tensor > 1 || context > 1 || pipeline > 1)
            add({.tensor = static_cast<int>(tensor),
                 .context = static_cast<int>(context),
                 .pipeline = static_cast<int>(pipeline),
                 .data = static_cast<int>(ranks / tensor / context / pipeline)});
    }
  }

  /// 1, and the sizes of context axes that long rows can have.
  std::vector<int64_t> context_sizes(int64_t ranks, int tensor) const {
    const Recipe& recipe = request_.recipe;
    if (!has_long_rows(recipe, *request_.model)) return {1};
    auto sizes = divisors(ranks, request_.model->seq_len / least_tokens_of_rank);
    std::erase_if(sizes, [&](int64_t size) {
      return refuse_context(recipe, static_cast<int>(size), form_of_context(recipe), tensor).has_value();
    });
    return sizes;
  }

  /// The mesh with all ways to cut the batch and to recompute layers.
  void add(MeshTrial trial) {
    const Recipe& recipe = request_.recipe;
    if (!can_divide_batch(recipe, trial.data)) return;
    const bool recompute_open = recipe.activation_checkpointing.mode == "none";
    for (const auto& batch : batch_choices(recipe, {.data = trial.data})) {
      trial.batch = batch;
      for (const int virtual_stages : virtual_stages_tried) {
        trial.virtual_stages = virtual_stages;
        if (!can_have_stages(trial)) continue;
        for (const int64_t every : recomputations_tried) {
          if (every > 0 && !recompute_open) continue;
          trial.every = every;
          add_if_it_may_fit(trial);
        }
      }
    }
  }

  /// With several virtual stages: each has a layer or more, and all groups of micro-batches are full.
  bool can_have_stages(const MeshTrial& trial) const {
    if (trial.virtual_stages == 1) return true;
    return trial.pipeline > 1 && trial.pipeline * trial.virtual_stages <= request_.model->layers() &&
           trial.batch.accumulation % trial.pipeline == 0;
  }

  void add_if_it_may_fit(MeshTrial trial) {
    auto& estimate = estimate_for(trial);
    trial.bytes = estimate.memory(trial);
    const auto limit = memory_limit(request_.topology, request_.recipe.devices.memory_limit.value_or(0)).device;
    if (limit > 0 && trial.bytes > limit) return;
    const Rates* rates = clock_.rates(estimate.job());
    const auto seconds = rates ? estimate.seconds(trial, *rates) : std::nullopt;
    const auto sequences = static_cast<double>(trial.batch.micro_batch_size * trial.batch.accumulation) * trial.data;
    // Without times: as few ranks that divide the model or a row as possible, little recomputation, and rather a tensor axis than a
    // pipeline.
    trial.seconds = seconds ? *seconds / sequences
                            : trial.tensor * trial.context * trial.pipeline * 16 +
                                  (trial.every > 0 ? 8.0 / trial.every : 0) +
                                  (trial.pipeline + trial.virtual_stages) / 16.0;
    trials_.push_back(trial);
  }

  MeshEstimate& estimate_for(const MeshTrial& trial) {
    auto& estimate = estimates_[{trial.tensor, trial.context}];
    if (!estimate) estimate = std::make_unique<MeshEstimate>(request_, forms_.back(), trial.tensor, trial.context);
    return *estimate;
  }

  /// The forms for the ranks that share state: strategies of one rank only for one rank.
  std::vector<Form> forms_of(const MeshTrial& trial) const {
    std::vector<Form> forms;
    for (const auto& form : forms_)
      if (find_strategy(form.strategy)->entry->distributed == (trial.sharing() > 1)) forms.push_back(form);
    return forms.empty() ? forms_ : forms;
  }

  /// The candidate of a trial with a plan; nullopt if it cannot run.
  std::optional<Candidate> plan(const MeshTrial& trial) {
    Recipe recipe = request_.recipe;
    Topology topology = request_.topology;
    topology.sizes = trial.sizes();
    recipe.devices.mesh = topology.sizes;
    if (trial.virtual_stages > 1) recipe.strategy.virtual_stages = trial.virtual_stages;
    const auto part = estimate_for(trial).part();
    const CandidateSearch search(recipe, *part, topology, request_.given);
    for (const auto& form : forms_of(trial)) {
      Candidate candidate = search.at(form, trial.batch, trial.every);
      if (!candidate.refused.empty()) continue;
      candidate.mesh = {.sizes = topology.sizes, .virtual_stages = trial.virtual_stages};
      candidate.part = part;
      if (candidate.fits) set_time(candidate, clock_);
      return candidate;
    }
    return std::nullopt;
  }

  const SelectionRequest& request_;
  const StepClock& clock_;
  const std::vector<Form>& forms_;
  /// By the sizes of the tensor and the context axis.
  std::map<std::pair<int, int>, std::unique_ptr<MeshEstimate>> estimates_;
  std::vector<MeshTrial> trials_;
};

}  // namespace

bool mesh_is_open(const Recipe& recipe, const Topology& topology) {
  const auto& keys = recipe.strategy;
  const bool says_nothing =
      topology.sizes == MeshSizes() && !keys.pipeline_schedule && !keys.virtual_stages && !keys.stages;
  return says_nothing && topology.world_size() > 1 && !refuse_stages(recipe);
}

bool has_long_rows(const Recipe& recipe, const ModelSpec& model) {
  return model.seq_len >= 2 * least_tokens_of_rank && !refuse_context(recipe, 2, ContextForm::gather, 1);
}

std::vector<Candidate> search_meshes(const SelectionRequest& request, const StepClock& clock,
                                     const std::vector<Form>& forms, size_t most) {
  if (forms.empty()) return {};
  return Search(request, clock, forms).best(most);
}

std::string costs_of_mesh(const Candidate& candidate) {
  std::string text;
  if (candidate.pipeline)
    text += fmt::format("; ranks of the pipeline wait for each other in {:.0f} % of a step",
                        100 * candidate.pipeline->bubble());
  double exposed = 0;
  std::vector<std::string> parts;
  for (const auto& axis : candidate.axes) {
    exposed += axis.exposed;
    parts.push_back(fmt::format("{} {:.1f} %", name_of(axis.axis), 100 * axis.exposed / *candidate.step_seconds));
  }
  if (!parts.empty())
    text += fmt::format("; exposed traffic takes {:.1f} % ({})", 100 * exposed / *candidate.step_seconds,
                        join(parts, ", "));
  return text;
}

}  // namespace runner
