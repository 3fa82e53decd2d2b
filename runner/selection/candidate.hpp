// Candidates of the selection: a form of a strategy with a micro-batch and checkpointing, its memory, and whether it
// fits. For a form that does not fit, the search reduces the micro-batch first, and then adds checkpointing. The choice adds more of it
// where a larger micro-batch is then faster.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/pipeline_plan.hpp"
#include "runner/selection/rules.hpp"
#include "runner/selection/topology.hpp"
#include "strategies/catalog.hpp"

namespace runner {

/// The cost that the communication along an axis of the mesh adds to a step.
struct AxisTime {
  Axis axis = Axis::data;  ///< `data` means all ranks that share the state of a part of the model
  int64_t wire_bytes = 0;  ///< that a rank sends in a step
  double seconds = 0;      ///< of all collectives and transfers, one after another
  double exposed = 0;      ///< of them, the seconds in which the rank does not compute
};

/// A mesh that the search for meshes chose.
struct ChosenMesh {
  MeshSizes sizes;
  int virtual_stages = 1;
};

struct Candidate {
  std::string form;  ///< name in the rule book, or of the strategy that the recipe names
  const Entry* entry = nullptr;
  Job job;  ///< points into the model of the search, `part` or `pipeline`: of the rank that needs most memory
  std::optional<ChosenMesh> mesh = {};              ///< nullopt: the mesh of the recipe
  std::shared_ptr<const ModelSpec> part = nullptr;  ///< with `mesh`: what a rank has of the matrices, of all blocks
  std::shared_ptr<const PipelinePlan> pipeline = nullptr;  ///< null: no pipeline
  int64_t every = 0;         ///< activation checkpointing that is added: each k-th block; 0: none
  int64_t every_needed = 0;  ///< the same, of the least with which it fits
  /// Less recomputation would fit too, but is slower, because the micro-batch is smaller.
  bool every_for_speed() const { return every != every_needed; }
  nlohmann::json tuned = nlohmann::json::object();  ///< options that the choice adds to those of the form
  MemoryParts memory;
  int64_t snapshot = 0;  ///< bytes of host memory for checkpoints, in addition to those of steps
  int64_t bytes = 0;     ///< of the device, with the context; on CPU also with the snapshot
  int64_t host = 0;      ///< of host memory with the snapshot; 0 on CPU, where host memory is the device
  bool fits = false;
  bool named = false;   ///< the recipe names this strategy with these options
  std::string refused;  ///< why it cannot run; then there is no memory and no time
  std::optional<double> step_seconds;
  double step_error = 0;            ///< relative standard deviation of measured times from step_seconds
  double compute_seconds = 0;       ///< of step_seconds: the work on tokens, which a larger micro-batch does not reduce
  std::vector<AxisTime> axes = {};  ///< of the axes along which the rank communicates; empty if times are not known
  double sequences() const { return static_cast<double>(job.micro_batch_size * job.accumulation * job.data_ranks()); }
};

/// Predicted seconds per sequence, to compare steps of different batches; infinite if they are not known.
double pace(const Candidate& candidate);

/// The form of the strategy that the recipe names.
extern const char* const own_form;

/// "fsdp FULL_SHARD", "zero stage 3, all on CPU", "lua:mine.lua, the recipe's own".
std::string label(const Candidate& candidate);

/// The memory that it needs, as the table shows it: "77.7 GiB a rank", "77.7 GiB a rank and 1.16 TiB of host memory".
std::string memory_needed(const Candidate& candidate);

/// The condition under which its micro-batch is the largest that fits: " without recomputation", or empty if there is
/// none.
std::string batch_condition(const Recipe& recipe, const Candidate& candidate);

/// The largest part of its device memory: "48.5 GiB of gathered parameters".
std::string largest_part(const Candidate& candidate);

/// A job with the fields that depend on neither strategy nor batch, and the largest factor of accumulate_grad_batches.
Job base_job(const Recipe& recipe, const ModelSpec& model, const Topology& topology);

/// Sets the optimizers of the job to those of [optimizer] and its groups.
void set_optimizers(const Recipe::Optimizer& optimizer, Job& job);

/// Sets Accelerator::platform if the devices are those of a PJRT plug-in.
void set_engine(const Entry& entry, Job& job);

/// {part: bytes} for the parts of MemoryParts::total().
nlohmann::json parts_json(const MemoryParts& memory);

/// Bytes of the training state in a checkpoint: without those of a base model, which it leaves out (ParameterSpec::of_base).
int64_t checkpoint_bytes(const Job& job, int64_t master_bytes);
/// Bytes of a checkpoint on disk, with at least 4 for each element. `model`: all of it, where `job` may have a part. The state of hooks is
/// not included.
int64_t checkpoint_bytes_on_disk(Job job, const ModelSpec& model);

/// Bytes of host memory that a rank needs for checkpoints, in addition to those of its steps: the copy of its state
/// from which an asynchronous checkpoint is written, and the full state if rank 0 writes all of it. A checkpoint that
/// training waits for is written from the state itself.
int64_t snapshot_bytes(const Recipe& recipe, const Entry& entry, const Job& job, const MemoryParts& memory);

class CandidateSearch {
 public:
  /// `recipe` is resolved, except for strategy, stages, micro-batch and accumulation. `model`: all blocks, with what a rank has of the
  /// matrices. `given`: options
  /// of [strategy], which override those of every form. `recipe` must outlive the search, and `model` the candidates.
  CandidateSearch(const Recipe& recipe, const ModelSpec& model, const Topology& topology, nlohmann::json given);

  /// The candidate of a form that cannot run, and why.
  Candidate refused(const Form& form, const std::string& why) const;
  /// The candidate with this micro-batch that recomputes each `every`-th block (0: as in the recipe).
  Candidate at(const Form& form, const BatchChoice& batch, int64_t every) const;
  /// The candidate with the largest micro-batch that fits. If none fits, the one with the least checkpointing that
  /// fits, and with the largest micro-batch for it. If this does not fit either, the smallest candidate.
  Candidate best(const Form& form) const;
  /// The candidate with the largest micro-batch that fits, or else the smallest micro-batch; `every` as in at().
  Candidate largest(const Form& form, int64_t every) const;
  /// The candidate with the largest micro-batch that fits and is larger than `than`; nullopt if there is none.
  std::optional<Candidate> larger(const Form& form, int64_t every, int64_t than) const;
  /// The smallest micro-batch, with all blocks recomputed unless the recipe sets checkpointing.
  Candidate smallest(const Form& form) const;

  /// Empty if the recipe's batch cannot be divided among the data ranks. Then only refused() can be called.
  const std::vector<BatchChoice>& batches() const { return batches_; }
  const MemoryLimit& limit() const { return limit_; }
  bool fits(int64_t bytes, int64_t host_bytes) const;

 private:
  /// The largest k with which the smallest micro-batch fits if each k-th layer is recomputed. `none`, `all`: the candidates that recompute
  /// no layer, and all, which fits.
  int64_t largest_every(const Form& form, const Candidate& none, const Candidate& all) const;

  const Recipe& recipe_;
  const ModelSpec& model_;
  nlohmann::json given_;
  Job job_;
  MeshSizes sizes_;
  MemoryLimit limit_;
  std::vector<BatchChoice> batches_;  ///< the largest micro-batch first
};

/// The candidate of a strategy that the recipe names, with the largest micro-batch that the recipe allows and that fits, and with the first
/// of Entry::variants that fits. Arguments as for CandidateSearch.
Candidate fit_named(const Recipe& recipe, const ModelSpec& model, const Topology& topology, const nlohmann::json& given,
                    const Entry& entry);

}  // namespace runner
