// One plan that selection considers: a form of a strategy with its micro-batch and checkpointing, what it takes, and
// whether it fits. The search inside a form is the upper half of the ladder: micro-batch first, then checkpointing.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/rules.hpp"
#include "runner/selection/topology.hpp"
#include "strategies/catalog.hpp"

namespace runner {

struct Candidate {
  std::string form;  ///< name in the rule book, or that of the strategy which the recipe names
  const Entry* entry = nullptr;
  Job job;            ///< points into the model given to the search
  int64_t every = 0;  ///< activation checkpointing beyond the recipe's own: each k-th block; 0: none
  nlohmann::json tuned = nlohmann::json::object();  ///< options that the choice has added to the form's
  MemoryParts memory;
  int64_t snapshot = 0;  ///< of host memory, for checkpoints beyond what steps need
  int64_t bytes = 0;     ///< of the device, with the context; on CPU, where it is the host's, with the snapshot
  int64_t host = 0;      ///< of host memory beside the device, with the snapshot; 0 on CPU
  bool fits = false;
  bool named = false;   ///< the recipe names this strategy with these options
  std::string refused;  ///< why it cannot run at all; then nothing above is filled in but form and entry
  std::optional<double> step_seconds;
  double step_error = 0;  ///< of step_seconds: standard deviation of measured times, over the predicted
  double sequences() const { return static_cast<double>(job.micro_batch_size * job.accumulation * job.world_size); }
};

/// The form of what the recipe itself names.
extern const char* const own_form;

/// "fsdp FULL_SHARD", "zero stage 3, all on CPU", "lua:mine.lua, the recipe's own".
std::string label(const Candidate& candidate);

/// The largest part of what it takes on the device: "48.5 GiB of gathered parameters".
std::string largest_part(const Candidate& candidate);

/// Tensors of parameter size that the optimizer keeps: Adam 2, momentum 1, plain SGD 0.
int optimizer_states(const Recipe::Optimizer& optimizer);

/// What of a job depends on neither strategy nor batch, and the largest factor of accumulate_grad_batches.
Job base_job(const Recipe& recipe, const ModelSpec& model, const Topology& topology);

/// {part: bytes}, without what is not a part.
nlohmann::json parts_json(const MemoryParts& memory);

/// Bytes of host memory that a rank needs for checkpoints beyond what its steps need: the copy of its state that a
/// checkpoint is written from while steps go on, and the whole state where rank 0 writes all of it. A checkpoint that
/// training waits for is written from the state itself.
int64_t snapshot_bytes(const Recipe& recipe, const Job& job, const MemoryParts& memory);

class CandidateSearch {
 public:
  /// `recipe`: everything but strategy, micro-batch and accumulation is resolved. `given`: options of [strategy], which
  /// every form takes over. `model` must outlive the candidates.
  CandidateSearch(const Recipe& recipe, const ModelSpec& model, const Topology& topology, nlohmann::json given);

  /// At this micro-batch, recomputing each `every`-th block (0: as the recipe says).
  Candidate at(const Form& form, const BatchChoice& batch, int64_t every) const;
  /// The largest micro-batch that fits; if none does, the least checkpointing with which one does, and then the largest
  /// micro-batch. What does not fit at all comes as small as it gets.
  Candidate best(const Form& form) const;
  /// As small as it gets.
  Candidate smallest(const Form& form) const;

  const std::vector<BatchChoice>& batches() const { return batches_; }
  const MemoryLimit& limit() const { return limit_; }
  bool fits(int64_t bytes, int64_t host_bytes) const;

 private:
  Candidate largest(const Form& form, int64_t every) const;

  const Recipe& recipe_;
  const ModelSpec& model_;
  nlohmann::json given_;
  Job job_;
  MemoryLimit limit_;
  std::vector<BatchChoice> batches_;  ///< the largest micro-batch first
};

}  // namespace runner
