#include "runner/selection/mesh_estimate.hpp"

#include <algorithm>
#include <cmath>

#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/recompute.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/contract/stage_spec.hpp"
#include "strategies/program/block_memory.hpp"

namespace runner {

namespace {

/// The ranks of one tensor axis and one context axis alone.
Topology of_one_sequence(Topology topology, int tensor, int context) {
  topology.sizes = {.data = 1, .context = context, .tensor = tensor};
  topology.devices_per_node = tensor * context;
  topology.num_nodes = 1;
  return topology;
}

/// Micro-batches of one virtual stage whose activations the first, or the last, rank of the pipeline keeps at most (schedule.hpp).
double chunks_in_flight(const MeshTrial& trial, bool first) {
  const int p = trial.pipeline, v = trial.virtual_stages, after = first ? p - 1 : 0;
  const double all = static_cast<double>(trial.batch.accumulation) * v;
  return std::min(all, v == 1 ? after + 1.0 : 2.0 * after + (v - 1.0) * p + 1);
}

/// The profiles of some blocks of a model.
class SomeBlocks : public BlockProfiler {
 public:
  SomeBlocks(std::shared_ptr<const ModelSpec> model, std::vector<size_t> blocks)
      : model_(std::move(model)), blocks_(std::move(blocks)) {}
  std::shared_ptr<const BlockProfiles> profiles(const Job& job, DType leaf) const override {
    Job whole = job;
    whole.model = model_.get();
    const auto all = model_->profiler->profiles(whole, leaf);
    auto some = std::make_shared<BlockProfiles>();
    for (const size_t block : blocks_) some->push_back((*all)[block]);
    return some;
  }

 private:
  std::shared_ptr<const ModelSpec> model_;
  std::vector<size_t> blocks_;
};

/// Communication hides behind a part of the computation.
std::vector<std::pair<double, double>> hidden_behind(double part) {
  std::vector<std::pair<double, double>> points;
  for (int power = -8; power <= 6; ++power) {
    const double ratio = std::exp2(power);
    points.emplace_back(ratio, std::max(0.0, 1 - part / ratio));
  }
  return points;
}

/// Adds `factor` times the load of `part`.
void add(StepLoad& sum, const StepLoad& part, double factor) {
  for (size_t kind = 0; kind < work_kinds; ++kind) sum.work[kind] += factor * part.work[kind];
  for (const auto& one : part.traffic) {
    auto found = std::ranges::find_if(sum.traffic, [&](const Traffic& other) {
      return other.collective == one.collective && other.ranks == one.ranks && other.stride == one.stride &&
             other.axis == one.axis;
    });
    if (found == sum.traffic.end())
      found = sum.traffic.insert(
          found, {.collective = one.collective, .ranks = one.ranks, .stride = one.stride, .axis = one.axis});
    found->calls += std::llround(factor * static_cast<double>(one.calls));
    found->payload_bytes += std::llround(factor * static_cast<double>(one.payload_bytes));
    found->wire_bytes += std::llround(factor * static_cast<double>(one.wire_bytes));
  }
}

}  // namespace

MeshSizes MeshTrial::sizes() const {
  MeshSizes sizes{.data = data};
  if (pipeline > 1) sizes.pipeline = pipeline;
  if (context > 1) sizes.context = context;
  if (tensor > 1) sizes.tensor = tensor;
  return sizes;
}

MeshEstimate::MeshEstimate(const SelectionRequest& request, const Form& form, int tensor, int context)
    : request_(request), limit_(memory_limit(request.topology, request.recipe.devices.memory_limit.value_or(0))) {
  const Topology topology = of_one_sequence(request.topology, tensor, context);
  part_ = part_of_rank(request.recipe, request.model, topology.mesh());
  job_ = base_job(request.recipe, *part_, topology);
  message_bytes_per_sequence_ = output_bytes(job_, 0);
  const Entry& entry = *find_strategy(form.strategy)->entry;
  auto options = form.options;
  options.update(request.given);
  Job job = job_;
  job.options = with_defaults(entry.options, options);
  job.accumulation = job.accumulation_most = 2;
  constexpr int some_shards = 2;
  job.mesh =
      Mesh(some_shards * tensor, {{.axis = Axis::data, .size = some_shards}, {.axis = Axis::tensor, .size = tensor}});
  job.pipeline.ranks = 2;
  plan_ = entry.plan(job);
  plan_.units.clear();  // only dtypes are used
  add_states();
}

void MeshEstimate::add_states() {
  double half_layers = 0, halves = 0, all = 0;
  int64_t layer = 0;
  for (size_t b = 0; b < part_->blocks.size(); ++b) {
    const auto& block = part_->blocks[b];
    const double flops = block.forward_flops_per_token + part_->backward_flops_per_token(b);
    all += flops;
    auto& states = block.kind == BlockKind::embedding ? first_ : block.kind == BlockKind::head ? last_ : layers_;
    if (block.kind == BlockKind::transformer) half_layers += flops, ++halves;
    if (!part_->continues_layer(b)) layer = 0;
    const auto add = [&](States& sum, const ParameterSpec& parameter) {
      const auto bytes = state_bytes(job_, plan_, parameter);
      sum.bytes.each += bytes.each;
      sum.bytes.shared += bytes.shared;
      sum.elements += parameter.numel();
      layer += bytes.each;
    };
    for (const auto& parameter : block.parameters) add(states, parameter);
    for (const auto& name : block.shared) add(copied_, *part_->parameters()[part_->slot(name)]);
    states.largest_each = std::max(states.largest_each, layer);
  }
  units_ = all / (half_layers / std::max(1.0, halves));
}

MeshEstimate::ShortPass MeshEstimate::short_pass(int64_t layers, int64_t micro_batch_size, bool recompute) const {
  ShortPass pass;
  ModelSpec model = without_blocks(*part_);
  std::vector<size_t> blocks;
  int64_t layer = 0;
  for (size_t b = 0; b < part_->blocks.size(); ++b) {
    const auto& block = part_->blocks[b];
    const bool of_layer = block.kind == BlockKind::transformer;
    if (of_layer && !part_->continues_layer(b)) ++layer;
    if (of_layer && layer > layers) continue;
    model.blocks.push_back(block);
    blocks.push_back(b);
  }
  model.profiler = std::make_shared<SomeBlocks>(part_, std::move(blocks));
  Job job = job_;
  job.model = &model;
  job.micro_batch_size = micro_batch_size;
  job.accumulation_most = 2;  // gradients are added
  for (const auto& block : model.blocks) job.recompute.push_back(recompute && block.kind == BlockKind::transformer);
  const Entry& alone = *find_strategy("single")->entry;
  job.options = with_defaults(alone.options, nlohmann::json::object());
  pass.load.traffic = alone.traffic(job);
  std::erase_if(pass.load.traffic, [](const Traffic& one) { return one.axis == Axis::data; });  // traffic_of_data()
  pass.load.work = step_work(job, &plan_, {}, pass.load.traffic);
  const BlockMemory memory(job, plan_.parameter);
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const auto kind = model.blocks[b].kind;
    auto& kept = kind == BlockKind::embedding ? pass.first : kind == BlockKind::head ? pass.last : pass.layer;
    const int64_t saved = job.recomputes(b) ? 0 : memory.saved(b);
    kept += job.begins_recomputation(b) ? memory.input(b) : saved;
    for (const auto& event : memory.backward(b, /*takes=*/false))
      if (event.kind == BackwardEvent::Kind::peak) pass.working = std::max(pass.working, event.bytes - saved);
  }
  return pass;
}

/// Layers are taken as equal: the first one stands for all.
const MeshEstimate::Pass& MeshEstimate::pass(int64_t micro_batch_size, int64_t every) {
  const auto [found, fresh] = passes_.try_emplace({micro_batch_size, every});
  Pass& pass = found->second;
  if (!fresh) return pass;
  auto checkpointing = request_.recipe.activation_checkpointing;
  if (every > 0) {
    checkpointing.mode = "every";
    checkpointing.every = every;
  }
  const auto layers = part_->layers(), again = part_->layers_with(recomputed_blocks(checkpointing, *part_));
  const auto [known, first] = short_passes_.try_emplace(micro_batch_size);
  if (first)
    known->second = {short_pass(0, micro_batch_size, false), short_pass(1, micro_batch_size, false),
                     short_pass(1, micro_batch_size, true)};
  const auto& [ends, once, twice] = known->second;
  add(pass.load, once.load, static_cast<double>(layers - again));
  add(pass.load, twice.load, static_cast<double>(again));
  add(pass.load, ends.load, 1 - static_cast<double>(layers));
  pass.layers = (layers - again) * once.layer + again * twice.layer;
  pass.first = ends.first;
  pass.last = ends.last;
  pass.working = std::max(once.working, again > 0 ? twice.working : 0);
  return pass;
}

double MeshEstimate::slowest_share(const MeshTrial& trial) const {
  const int stages = trial.pipeline * trial.virtual_stages;
  return stages == 1 ? 1 : trial.virtual_stages * std::ceil(units_ / stages) / units_;
}

int64_t MeshEstimate::elements(const MeshTrial& trial) const {
  if (trial.pipeline == 1) return layers_.elements + first_.elements + last_.elements;
  return layers_.elements / trial.pipeline + std::max(first_.elements, last_.elements + copied_.elements);
}

int64_t MeshEstimate::memory(const MeshTrial& trial) {
  const Pass& one = pass(trial.batch.micro_batch_size, trial.every);
  const int64_t micro_batches = trial.batch.accumulation;
  int64_t bytes = limit_.context + job_.accelerator.workspace_bytes + one.working +
                  micro_batches * trial.batch.micro_batch_size * part_->batch_row_bytes();
  if (trial.pipeline == 1) {
    bytes += one.layers + one.first + one.last;
    const int64_t shared = layers_.bytes.shared + first_.bytes.shared + last_.bytes.shared;
    if (trial.sharing() == 1) return bytes + shared + layers_.bytes.each + first_.bytes.each + last_.bytes.each;
    constexpr int gathered_layers = 2;
    const int64_t gathered =
        std::max({gathered_layers * layers_.largest_each, first_.largest_each, last_.largest_each});
    return bytes + (shared + elements(trial) * bytes_of(DType::float32)) / trial.sharing() + gathered;
  }
  const auto of_rank = [&](const States& end, int64_t kept_by_end, bool first) {
    const double chunks = chunks_in_flight(trial, first), stages = trial.pipeline * trial.virtual_stages;
    const double kept = static_cast<double>(one.layers) * chunks / stages +
                        static_cast<double>(kept_by_end) * (first ? chunks / trial.virtual_stages : 1);
    return layers_.bytes.each / trial.pipeline + end.bytes.each +
           (layers_.bytes.shared / trial.pipeline + end.bytes.shared) / trial.sharing() + static_cast<int64_t>(kept);
  };
  const States last{
      .bytes = {.each = last_.bytes.each + copied_.bytes.each, .shared = last_.bytes.shared + copied_.bytes.shared}};
  return bytes + std::max(of_rank(first_, one.first, true), of_rank(last, one.last, false));
}

std::vector<Traffic> MeshEstimate::traffic_of_data(const MeshTrial& trial) const {
  if (trial.sharing() == 1) return {};
  const int64_t gathered = elements(trial) * bytes_of(plan_.parameter),
                reduced = elements(trial) * bytes_of(plan_.reduce);
  // In a pipeline once a step; otherwise in the forward and in the backward of each micro-batch.
  const int64_t times = trial.pipeline > 1 ? 1 : trial.batch.accumulation, gathers = trial.pipeline > 1 ? 1 : 2;
  const int64_t calls = times * (part_->layers() / trial.pipeline + 1);
  return {
      make_traffic(Collective::all_gather, trial.sharing(), gathers * calls, gathers * times * gathered, trial.tensor),
      make_traffic(Collective::reduce_scatter, trial.sharing(), calls, times * reduced, trial.tensor)};
}

std::optional<double> MeshEstimate::seconds(const MeshTrial& trial, const Rates& rates) {
  const Pass& one = pass(trial.batch.micro_batch_size, trial.every);
  const auto micro_batches = static_cast<double>(trial.batch.accumulation);
  const double passes = micro_batches * slowest_share(trial);
  StepLoad load = one.load;
  load.local_size = request_.topology.devices_per_node;
  load.stretch = 1 + (trial.pipeline - 1) / (trial.virtual_stages * micro_batches);
  for (auto& amount : load.work) amount *= passes * load.stretch;
  load.work[static_cast<size_t>(Work::steps)] = 1;
  load.work[static_cast<size_t>(Work::updates)] =
      static_cast<double>(elements(trial)) / trial.sharing() * job_.update_passes();
  for (auto& part : load.traffic) {
    part.calls = std::llround(static_cast<double>(part.calls) * passes);
    part.payload_bytes = std::llround(static_cast<double>(part.payload_bytes) * passes);
    part.wire_bytes = std::llround(static_cast<double>(part.wire_bytes) * passes);
  }
  for (auto& part : traffic_of_data(trial)) load.traffic.push_back(std::move(part));
  load.exposed = hidden_behind(trial.pipeline > 1 ? 1 / micro_batches : 1);
  if (trial.pipeline > 1) {
    load.exposed_transfers = 0.5;    // a rank waits for what it receives
    constexpr int64_t messages = 4;  // of each stage: an activation and a gradient, in and out
    const int64_t calls = messages * trial.virtual_stages * trial.batch.accumulation;
    const int64_t message = trial.batch.micro_batch_size * message_bytes_per_sequence_;
    load.traffic.push_back(
        make_traffic(Collective::transfer, 2, calls, calls * message, trial.sharing() * trial.tensor, Axis::pipeline));
  }
  const auto time = step_time(load, rates);
  return time ? std::optional(time->total()) : std::nullopt;
}

}  // namespace runner
