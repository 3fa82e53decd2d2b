// Pipelines in plans: which blocks each stage has, what each rank needs, and how long ranks wait for each other.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "runner/selection/topology.hpp"
#include "strategies/catalog.hpp"
#include "strategies/pipeline/simulation.hpp"

namespace runner {

/// Bytes of a parameter in a pipeline, where parameters stay gathered and gradients are reduced once a step.
struct StateBytes {
  int64_t each = 0;    ///< on each rank: gathered, and its gradients
  int64_t shared = 0;  ///< of all shards: what the optimizer updates and keeps
  int64_t on_rank(int shards) const { return each + shared / shards; }
};
StateBytes state_bytes(const Job& job, const ParallelPlan& plan, const ParameterSpec& parameter);

/// The pipeline of the recipe on a mesh, without micro-batches. Without a pipeline axis: one rank with one stage.
PipelineShape pipeline_of(const Recipe& recipe, const Mesh& mesh);

/// Reports a shape that has no schedule, and stages that the blocks of the model cannot be divided into. `model`: all of it.
void check_stages(const Recipe& recipe, const ModelSpec& model, const PipelineShape& shape,
                  std::vector<Diagnostic>& diagnostics);

/// The blocks of a rank. `divided`: all blocks, with the rank's part of the matrices. A resolved recipe has the numbers of blocks.
std::shared_ptr<const ModelSpec> stage_of_rank(const Recipe& resolved, const ModelSpec& divided, const Mesh& mesh,
                                               int rank);
/// The job with the blocks of a rank of the pipeline. `job`: of all blocks. `stage` must outlive the result.
Job job_of_stage(Job job, const ModelSpec& stage);

/// The memory of each rank of a pipeline. It is predicted when it is first asked for.
class RankMemory {
 public:
  using Models = std::vector<std::shared_ptr<const ModelSpec>>;
  RankMemory() = default;
  RankMemory(Models models, std::function<MemoryParts(const ModelSpec& stage)> predict)
      : models_(std::move(models)), predict_(std::move(predict)), known_(models_.size()) {}
  /// Without values if it is not known.
  const MemoryParts& of(int rank) const;

 private:
  Models models_;
  std::function<MemoryParts(const ModelSpec&)> predict_;
  mutable std::vector<std::optional<MemoryParts>> known_;
};

/// A pipeline that is planned.
struct PipelinePlan {
  PipelineShape shape;   ///< with the micro-batches of a step
  StageBlocks blocks;    ///< of each virtual stage
  std::string division;  ///< how the blocks were divided, in words
  std::vector<std::shared_ptr<const ModelSpec>>
      models;                                 ///< of each rank of the pipeline, for its first rank of the tensor axis
  std::vector<StageTime> times;               ///< of each virtual stage: FLOPs per token
  double length = 0;                          ///< of a step with these times; transfers take no time
  double exposed_transfers = 0;               ///< the share of a rank's transfers on the longest path of the schedule
  RankMemory memory;                          ///< of each rank
  int largest = 0;                            ///< the rank that needs most memory
  std::vector<bool> recompute;                ///< of all blocks of the model: as Job::recompute
  int64_t layers = 0, recomputed_layers = 0;  ///< of the model; a layer can be on two ranks

  /// The job with the blocks of a rank. `job`: of any rank.
  Job job_of_rank(Job job, int rank) const;
  /// The time in which a rank computes, in the unit of `times`.
  double busy(int rank) const;
  int slowest() const;  ///< the rank that computes longest
  /// The share of a step in which ranks wait for each other, on average.
  double bubble() const;
  /// The time of a step relative to that in which the slowest rank computes: 1 + (ranks - 1) / (virtual stages x micro-batches) with equal
  /// stages.
  double stretch() const;
  /// All actions of a step with `times`.
  PipelineSimulation simulation() const;
};

/// The pipeline of a job. `job`: of all blocks, for which `entry` has no objection. Blocks are divided as the recipe says, or so that the
/// slowest stage is fastest. If a rank would need more than the limit then, so that the slowest stage is fastest among divisions that fit.
/// A division whose memory would be above the limit is taken only if there is no other.
PipelinePlan plan_pipeline(const Recipe& recipe, const Job& job, const Entry& entry, const MemoryLimit& limit);

/// {schedule, micro_batches, virtual_stages, stages: [blocks], wait_share, ranks: [{blocks, memory_bytes, work_share}]}. work_share: of the
/// FLOPs of a step.
nlohmann::json to_json(const PipelinePlan& pipeline);
/// Notes about a pipeline with few micro-batches.
std::vector<std::string> notes_of(const PipelinePlan& pipeline);
/// The blocks of a rank's stages: "embedding to blocks.1.mlp (5 blocks)". Of more than three stages: the first and the last.
std::string blocks_text(const ModelSpec& stage);

}  // namespace runner
