#include "runner/selection/pipeline_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/selection/script_strategy.hpp"
#include "strategies/pipeline/simulation.hpp"
#include "strategies/pipeline/transfers.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/program/split_backward.hpp"

namespace runner {

namespace {

/// FLOPs per token of a block, with its recomputation.
StageTime time_of(const Job& job, size_t block) {
  const double forward = job.model->blocks[block].forward_flops_per_token;
  const double backward = job.model->backward_flops_per_token(block) + (job.recomputes(block) ? forward : 0);
  const double weight = weight_flops_per_token(*job.model, block);
  return {.forward = forward, .backward = backward, .backward_input = backward - weight, .backward_weight = weight};
}

std::vector<BlockCost> block_costs(const Job& job, const ParallelPlan& plan) {
  const auto& model = *job.model;
  const BlockMemory memory(job, plan.parameter);
  const bool splits = splits_backward(job.pipeline.schedule);
  const auto parameters = model.parameters();
  std::vector<BlockCost> costs;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const auto& block = model.blocks[b];
    const auto time = time_of(job, b);
    BlockCost cost{.name = block.name, .time = time.forward + time.backward};
    for (const auto& parameter : block.parameters)
      cost.state_bytes += state_bytes(job, plan, parameter).on_rank(plan.shards());
    for (const auto& name : block.shared)
      cost.state_bytes += state_bytes(job, plan, *parameters[model.slot(name)]).on_rank(plan.shards());
    cost.activation_bytes = job.recomputes(b) ? (job.begins_recomputation(b) ? memory.input(b) : 0) : memory.saved(b);
    if (splits) cost.activation_bytes = std::max(cost.activation_bytes, memory.kept_for_weights(b));
    costs.push_back(std::move(cost));
  }
  return costs;
}

PipelineSimulation played(const PipelineShape& shape, const std::vector<StageTime>& times, double latency = 0) {
  return simulate(shape, *training_order_with_transfers(shape), {.stages = times, .latency = latency});
}

/// The share of a rank's transfers by which a step is longer if each transfer takes 1 % of the time of a stage. In a step with many
/// micro-batches it is about that of a shorter step.
double exposed_transfers(const PipelineShape& step, const std::vector<StageTime>& times) {
  const auto shape = settled(step);
  const double all = std::accumulate(times.begin(), times.end(), 0.0, [](double sum, const StageTime& time) {
    return sum + time.forward + time.backward;
  });
  const double latency = 0.01 * all / shape.stages();
  const auto plain = played(shape, times), late = played(shape, times, latency);
  int64_t transfers = 0;  // of the rank with most
  for (const auto& rank : plain.ranks)
    transfers = std::max<int64_t>(
        transfers, std::ranges::count_if(rank, [](const auto& one) { return is_transfer(one.action.kind); }));
  return transfers == 0 ? 0 : (late.end - plain.end) / latency / static_cast<double>(transfers);
}

/// The memory that each virtual stage may hold.
std::vector<StageMemory> limits_of(const PipelineShape& shape, const MemoryLimit& limit) {
  const auto held = played(settled(shape), {}).stage_peak;
  std::vector<StageMemory> stages(static_cast<size_t>(shape.stages()));
  for (size_t i = 0; i < stages.size(); ++i) {
    if (limit.device > 0) stages[i].limit = (limit.device - limit.context) / shape.virtual_stages;
    stages[i].micro_batches = held[i];
  }
  return stages;
}

std::vector<StageTime> times_of(const Job& job, const StageBlocks& blocks) {
  std::vector<StageTime> times;
  size_t block = 0;
  for (const int count : blocks) {
    StageTime sum{.forward = 0, .backward = 0, .backward_input = 0, .backward_weight = 0};
    for (int i = 0; i < count; ++i) {
      const auto one = time_of(job, block++);
      sum.forward += one.forward;
      sum.backward += one.backward;
      sum.backward_input += one.backward_input;
      sum.backward_weight += one.backward_weight;
    }
    times.push_back(sum);
  }
  return times;
}

/// The job with fewer micro-batches that needs as much memory, except for the batches. With gpipe each further micro-batch needs more.
Job with_enough_micro_batches(Job job) {
  const auto& shape = job.pipeline;
  const bool equal_groups = job.accumulation % shape.ranks == 0 && job.most_micro_batches() == job.accumulation;
  const int64_t enough = settled_micro_batches(shape);
  if (shape.schedule != PipelineSchedule::gpipe && equal_groups && job.accumulation > enough)
    job.accumulation = job.accumulation_most = enough;
  return job;
}

/// The ranks among which the one is that needs most memory. Of ranks with the same blocks the first one keeps the activations of most
/// micro-batches, if the backward is not split.
std::vector<int> may_need_most(const PipelinePlan& plan, const std::vector<BlockCost>& costs) {
  std::vector<int> list;
  std::vector<std::vector<BlockCost>> known;
  for (int rank = 0; rank < plan.shape.ranks; ++rank) {
    std::vector<BlockCost> own;
    for (const size_t block : plan.models[static_cast<size_t>(rank)]->stage->block_of) {
      own.push_back(costs[block]);
      own.back().name.clear();
    }
    if (!splits_backward(plan.shape.schedule) && std::ranges::find(known, own) != known.end()) continue;
    known.push_back(std::move(own));
    list.push_back(rank);
  }
  return list;
}

/// Sets the parts of the model that the ranks have, and how their memory is predicted.
void give_blocks(PipelinePlan& plan, StageBlocks blocks, const Job& job, const Entry& entry,
                 const std::vector<BlockCost>& costs) {
  plan.blocks = std::move(blocks);
  plan.models.clear();
  for (int rank = 0; rank < plan.shape.ranks; ++rank)
    plan.models.push_back(std::make_shared<ModelSpec>(stage_spec(*job.model, plan.blocks, plan.shape.ranks, rank)));
  const Job short_step = with_enough_micro_batches(job);
  const int64_t batches_left_out =
      (job.accumulation - short_step.accumulation) * job.micro_batch_size * job.model->batch_row_bytes();
  plan.memory = RankMemory(plan.models, [=, &entry](const ModelSpec& stage) {
    if (!memory_known(entry)) return MemoryParts();
    auto memory = claimed_memory(entry, job_of_stage(short_step, stage));
    memory.activations += batches_left_out;
    return memory;
  });
  plan.largest = 0;
  for (const int rank : may_need_most(plan, costs))
    if (plan.memory.of(rank).total() > plan.memory.of(plan.largest).total()) plan.largest = rank;
}

/// Divides the blocks, and says how.
void divide(PipelinePlan& plan, const Recipe& recipe, const Job& job, const Entry& entry, const MemoryLimit& limit) {
  const auto costs = block_costs(job, entry.plan(job));
  if (recipe.strategy.stages) {
    plan.division = "as the recipe says";
    return give_blocks(plan, stages_by_hand(*recipe.strategy.stages, costs, plan.shape.stages()), job, entry, costs);
  }
  plan.division = "the slowest stage is as fast as possible";
  give_blocks(plan, balance(costs, std::vector<StageMemory>(static_cast<size_t>(plan.shape.stages()))), job, entry,
              costs);
  const int64_t needed = plan.memory.of(plan.largest).total();
  if (limit.device == 0 || needed <= limit.device - limit.context) return;
  try {
    auto fitting = balance(costs, limits_of(plan.shape, limit));
    if (fitting == plan.blocks) return;
    plan.division += ", among divisions that fit the memory";
    give_blocks(plan, std::move(fitting), job, entry, costs);
  } catch (const Error&) {  // none fits
  }
}

}  // namespace

const MemoryParts& RankMemory::of(int rank) const {
  auto& known = known_.at(static_cast<size_t>(rank));
  if (!known) known = predict_(*models_[static_cast<size_t>(rank)]);
  return *known;
}

StateBytes state_bytes(const Job& job, const ParallelPlan& plan, const ParameterSpec& parameter) {
  const int64_t elements = parameter.numel();
  StateBytes bytes;
  bytes.each = elements * (bytes_of(plan.parameter) + (parameter.trainable ? bytes_of(plan.accumulate) : 0));
  if (job.precision.parameter != plan.parameter || plan.shards() > 1) bytes.shared = bytes_of(plan.master) * elements;
  if (parameter.trainable) bytes.shared += job.state_bytes(parameter, elements, bytes_of(plan.master));
  return bytes;
}

PipelineShape pipeline_of(const Recipe& recipe, const Mesh& mesh) {
  const int ranks = mesh.size(Axis::pipeline);
  if (ranks == 1) return {};
  return {.schedule = schedule_of(recipe),
          .ranks = ranks,
          .virtual_stages = static_cast<int>(recipe.strategy.virtual_stages.value_or(1))};
}

void check_stages(const Recipe& recipe, const ModelSpec& model, const PipelineShape& shape,
                  std::vector<Diagnostic>& diagnostics) {
  if (shape.ranks == 1) return;
  const auto report = [&](const std::string& key, const std::string& why) {
    diagnostics.push_back({.place = recipe.origin(key), .code = "mesh", .message = why});
  };
  const bool several = recipe.strategy.virtual_stages.value_or(1) > 1;
  if (const auto why = refuse_pipeline(shape))
    return report(recipe.strategy.pipeline_schedule ? "strategy.pipeline_schedule" : "strategy.virtual_stages", *why);
  std::vector<BlockCost> blocks;
  for (const auto& block : model.blocks) blocks.push_back({.name = block.name});
  try {
    if (recipe.strategy.stages)
      stages_by_hand(*recipe.strategy.stages, blocks, shape.stages());
    else
      balance(blocks, std::vector<StageMemory>(static_cast<size_t>(shape.stages())));
  } catch (const Error& error) {
    report(recipe.strategy.stages ? "strategy.stages"
           : several              ? "strategy.virtual_stages"
                                  : key_of_size(recipe, Axis::pipeline),
           error.what());
  }
}

std::shared_ptr<const ModelSpec> stage_of_rank(const Recipe& resolved, const ModelSpec& divided, const Mesh& mesh,
                                               int rank) {
  RUNNER_CHECK(resolved.strategy.stages, "a resolved recipe has the blocks of each stage");
  const auto& blocks = std::get<StageBlocks>(*resolved.strategy.stages);
  return std::make_shared<ModelSpec>(
      stage_spec(divided, blocks, mesh.size(Axis::pipeline), mesh.coordinate(rank, Axis::pipeline)));
}

Job job_of_stage(Job job, const ModelSpec& stage) {
  std::vector<bool> recompute;
  for (const size_t block : stage.stage->block_of)
    recompute.push_back(block < job.recompute.size() && job.recompute[block]);
  job.model = &stage;
  job.recompute = std::move(recompute);
  return job;
}

Job PipelinePlan::job_of_rank(Job job, int rank) const {
  job.recompute = recompute;
  return job_of_stage(std::move(job), *models[static_cast<size_t>(rank)]);
}

double PipelinePlan::busy(int rank) const {
  double sum = 0;
  for (int stage = rank; stage < shape.stages(); stage += shape.ranks)
    sum += times[static_cast<size_t>(stage)].forward + times[static_cast<size_t>(stage)].backward;
  return shape.micro_batches * sum;
}

int PipelinePlan::slowest() const {
  int slowest = 0;
  for (int rank = 1; rank < shape.ranks; ++rank)
    if (busy(rank) > busy(slowest)) slowest = rank;
  return slowest;
}

double PipelinePlan::bubble() const {
  double computing = 0;
  for (int rank = 0; rank < shape.ranks; ++rank) computing += busy(rank);
  return length > 0 ? 1 - computing / (length * shape.ranks) : 0;
}

double PipelinePlan::stretch() const { return length / busy(slowest()); }

PipelineSimulation PipelinePlan::simulation() const { return played(shape, times); }

PipelinePlan plan_pipeline(const Recipe& recipe, const Job& job, const Entry& entry, const MemoryLimit& limit) {
  PipelinePlan plan;
  plan.shape = job.pipeline;
  plan.shape.micro_batches = static_cast<int>(job.accumulation);
  plan.recompute = job.recompute;
  divide(plan, recipe, job, entry, limit);
  plan.times = times_of(job, plan.blocks);
  plan.length = step_length(plan.shape, {.stages = plan.times});
  plan.exposed_transfers = exposed_transfers(plan.shape, plan.times);
  plan.layers = job.model->layers();
  plan.recomputed_layers = job.model->layers_with(job.recompute);
  return plan;
}

nlohmann::json to_json(const PipelinePlan& pipeline) {
  auto ranks = nlohmann::json::array();
  double work = 0;
  for (int rank = 0; rank < pipeline.shape.ranks; ++rank) work += pipeline.busy(rank);
  for (int rank = 0; rank < pipeline.shape.ranks; ++rank)
    ranks.push_back({{"blocks", blocks_text(*pipeline.models[static_cast<size_t>(rank)])},
                     {"memory_bytes", pipeline.memory.of(rank).total()},
                     {"work_share", pipeline.busy(rank) / work}});
  return {{"schedule", name_of(pipeline.shape.schedule)},
          {"micro_batches", pipeline.shape.micro_batches},
          {"virtual_stages", pipeline.shape.virtual_stages},
          {"stages", pipeline.blocks},
          {"wait_share", pipeline.bubble()},
          {"ranks", ranks}};
}

std::vector<std::string> notes_of(const PipelinePlan& pipeline) {
  constexpr double much = 0.2;
  auto notes = pipeline_notes(pipeline.shape);
  const auto blocks = std::accumulate(pipeline.blocks.begin(), pipeline.blocks.end(), 0);
  const bool more_stages = blocks >= pipeline.shape.ranks * (pipeline.shape.virtual_stages + 1);
  if (const double bubble = pipeline.bubble(); bubble > much && notes.empty())
    notes.push_back(fmt::format(
        "the ranks of the pipeline are predicted to wait for each other in {:.0f} % of a step: they wait less "
        "with more micro-batches (a smaller train.micro_batch_size, or larger "
        "train.accumulate_grad_batches){}",
        100 * bubble, more_stages ? ", or with more strategy.virtual_stages" : ""));
  return notes;
}

std::string blocks_text(const ModelSpec& stage) {
  std::vector<std::string> parts;
  for (size_t b = 0, first = 0; b < stage.blocks.size(); ++b) {
    if (!stage.stage->ends_stage(b)) continue;
    parts.push_back(first == b ? stage.blocks[b].name
                               : fmt::format("{} to {}", stage.blocks[first].name, stage.blocks[b].name));
    first = b + 1;
  }
  constexpr size_t most = 3;
  if (parts.size() > most) parts.erase(parts.begin() + 1, parts.end() - 1), parts.insert(parts.begin() + 1, "...");
  return fmt::format("{} ({})", join(parts, ", "), counted(std::ssize(stage.blocks), "block"));
}

}  // namespace runner
