// The plan: a recipe in which every `auto` is replaced by a value, with the reasons. It depends only on the recipe and on facts
// that the caller passes.
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
  std::string rule;          ///< the documented rule, or "named"
  std::string reason;        ///< one sentence
  Choice choice;             ///< all candidates; none if the recipe names the strategy
  SelectionRequest request;  ///< the input of `choice`
  std::vector<std::string> notes;
  std::shared_ptr<const ModelSpec> model;        ///< all of it
  std::shared_ptr<const ModelSpec> part;         ///< of the rank that needs most memory
  std::shared_ptr<const PipelinePlan> pipeline;  ///< null: no pipeline
  Job job;                                       ///< of the first epoch; points into `part`
  MemoryParts memory;
  std::vector<Traffic> traffic;
  std::optional<double> step_seconds;  ///< predicted; nullopt: not known
  double step_error = 0;               ///< relative standard deviation of measured times from step_seconds
  std::optional<StepLoad> load;        ///< of a step; nullopt: not known
  std::optional<Circumstances> where;  ///< of its steps; set by the caller, which knows the machine
  int64_t vocab_size = 0, seq_len = 0;

  /// Largest number of tensor bytes on the device of one rank: the peak of a step, and on CPU also the snapshot from which an
  /// asynchronous checkpoint is written.
  int64_t memory_bytes() const { return memory.total() + (job.accelerator.own_memory ? 0 : snapshot_bytes()); }
  /// Bytes of host memory, including that snapshot; 0 on CPU, where host memory is the device.
  int64_t host_bytes() const { return job.accelerator.own_memory ? memory.host + snapshot_bytes() : 0; }
  int64_t snapshot_bytes() const;
  nlohmann::json to_json() const;
};

/// `tokenizer_vocab_size`: the tokenizer's, if the data have one. `own`: one more candidate for "auto". Throws RecipeError with
/// all mistakes that can only be found with the catalog, the topology or the vocabulary, and NothingFits if no candidate of
/// strategy = "auto" fits.
Plan make_plan(const Recipe& recipe, const Topology& topology, std::optional<int64_t> tokenizer_vocab_size,
               const StepClock& clock = {}, const std::optional<Form>& own = {});

/// No plan fits the memory limit. The message contains the shortfall, and the cheapest changes that help.
class NothingFits : public Error {
 public:
  NothingFits(const std::string& message, std::shared_ptr<const Plan> plan)
      : Error(ExitCode::run_failed, message), plan_(std::move(plan)) {}
  /// The unfinished plan: recipe, model, request and choice.
  const Plan& plan() const { return *plan_; }

 private:
  std::shared_ptr<const Plan> plan_;
};

/// The Job of a resolved recipe, from which a worker builds its strategy. `model`: what a rank has of it; with a pipeline all blocks, and
/// job_of_stage() selects those of the rank. `epoch` selects the accumulation factor.
Job make_job(const Recipe& resolved, const ModelSpec& model, const Topology& topology, int64_t epoch = 0);

/// Sequences of one optimizer step in `epoch`, and the number of micro-batches into which each data rank cuts its part.
int64_t global_batch_size(const Recipe& resolved, int data_ranks, int64_t epoch);
int64_t accumulation(const Recipe& resolved, int data_ranks, int64_t epoch);

}  // namespace runner
