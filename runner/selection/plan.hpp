// The plan: a recipe in which every `auto` has become a value, with the reasons. Pure: recipe and facts in, plan or
// located errors out.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "runner/selection/choice.hpp"
#include "runner/selection/learning.hpp"
#include "strategies/catalog.hpp"

namespace runner {

struct Plan {
  Recipe recipe;  ///< resolved; print_recipe() of it is resolved.toml
  const Entry* entry = nullptr;
  std::string rule;          ///< which row of the documented rules, or "named"
  std::string reason;        ///< one sentence
  Choice choice;             ///< what else was considered; no candidates where the recipe names the strategy
  SelectionRequest request;  ///< what `choice` answers
  std::vector<std::string> notes;
  std::shared_ptr<ModelSpec> model;
  Job job;  ///< of the first epoch; points into `model`
  MemoryParts memory;
  std::vector<Traffic> traffic;
  std::optional<double> step_seconds;  ///< predicted, where that can be told
  double step_error = 0;               ///< of step_seconds: standard deviation of measured times, over the predicted
  std::optional<StepLoad> load;        ///< of a step, where that is known
  std::optional<Circumstances> where;  ///< of its steps; set by the caller who knows the machine
  int64_t vocab_size = 0, seq_len = 0;

  /// Tensor bytes of the device that one rank takes at most: the step's peak, and on CPU the snapshot that a checkpoint
  /// is written from while steps go on.
  int64_t memory_bytes() const { return memory.total() + (job.cuda ? 0 : snapshot_bytes()); }
  /// Of host memory beside the device, that snapshot included; 0 on CPU.
  int64_t host_bytes() const { return job.cuda ? memory.host + snapshot_bytes() : 0; }
  int64_t snapshot_bytes() const;
  nlohmann::json to_json() const;
};

/// `tokenizer_vocab_size`: the tokenizer's, if the data have one. Throws RecipeError with every mistake that needs the
/// catalog, the topology or the vocabulary to be seen, and NothingFits where strategy = "auto" finds no way. `own`: one
/// more candidate for "auto".
Plan make_plan(const Recipe& recipe, const Topology& topology, std::optional<int64_t> tokenizer_vocab_size,
               const StepClock& clock = {}, const std::optional<Form>& own = {});

/// No plan fits the memory limit: by how much, and the cheapest ways out.
class NothingFits : public Error {
 public:
  NothingFits(const std::string& message, std::shared_ptr<const Plan> plan)
      : Error(ExitCode::run_failed, message), plan_(std::move(plan)) {}
  /// As far as it got: recipe, model, request and choice.
  const Plan& plan() const { return *plan_; }

 private:
  std::shared_ptr<const Plan> plan_;
};

/// The Job of a resolved recipe: what the worker builds its strategy from. `epoch` picks the accumulation factor.
Job make_job(const Recipe& resolved, const ModelSpec& model, const Topology& topology, int64_t epoch = 0);

/// Sequences of one optimizer step in `epoch`.
int64_t global_batch_size(const Recipe& resolved, int world_size, int64_t epoch);
int64_t accumulation(const Recipe& resolved, int world_size, int64_t epoch);

}  // namespace runner
