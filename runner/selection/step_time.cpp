#include "runner/selection/step_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/selection/script_strategy.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/program.hpp"
#include "strategies/program/update_work.hpp"

namespace runner {

namespace {

double& at(StepWork& work, Work kind) { return work[static_cast<size_t>(kind)]; }

/// A product of `tokens` rows with a matrix [out, in].
void add_product(StepWork& work, double tokens, double out, double in) {
  const double flops = 2 * tokens * out * in;
  at(work, Work::product_flops) += flops;
  at(work, Work::thin_product_flops) += flops / std::min(out, in);
}
void add_product(StepWork& work, double tokens, const ParameterSpec& matrix) {
  add_product(work, tokens, static_cast<double>(matrix.shape[0]), static_cast<double>(matrix.shape[1]));
}

/// Rows of the products of a block in a micro-batch: its tokens. A head that predicts labels or numbers has one of each row of the batch.
double product_rows(const Job& job, const BlockSpec& block) {
  const bool labels = block.kind == BlockKind::head && job.model->task;
  return static_cast<double>(job.micro_batch_size * (labels ? 1 : job.model->seq_len));
}

/// Matrix products and element-wise work of one forward pass through a block. The output of a block inside a layer is not counted,
/// because it is what the next block saves as its input. The fixed cost is that of a layer.
StepWork forward_work(const Job& job, const BlockMemory& memory, size_t index) {
  const BlockSpec& block = job.model->blocks[index];
  const bool layer_ends = index + 1 == job.model->blocks.size() || !job.model->continues_layer(index + 1);
  StepWork work = {};
  const double tokens = product_rows(job, block);
  double products = 0;
  auto multiply = [&](double out, double in) {
    products += 2 * out * in;
    add_product(work, tokens, out, in);
  };
  if (block.kind != BlockKind::embedding)
    for (const auto& parameter : block.parameters)
      if (parameter.shape.size() == 2)
        multiply(static_cast<double>(parameter.shape[0]), static_cast<double>(parameter.shape[1]));
  if (block.kind == BlockKind::head) {
    const ModelSpec& model = *job.model;
    const auto rows = static_cast<double>(model.task ? model.task->outputs : model.division.most(model.vocab_size));
    if (!block.shared.empty()) multiply(rows, static_cast<double>(model.dim));
    at(work, Work::logits) = tokens * rows;
  }
  if (block.kind == BlockKind::transformer)
    at(work, Work::attention_flops) = tokens * std::max(0.0, block.forward_flops_per_token - products);
  at(work, Work::activation_bytes) =
      static_cast<double>(memory.saved_activations(index) + (layer_ends ? memory.output(index) : 0));
  at(work, Work::block_passes) = layer_ends;
  return work;
}

/// Passes through a block in a micro-batch: forward, recomputation, and backward, which counts as two. `again`: it is recomputed.
/// Not computed are the gradients of frozen weights, and the last product of a recomputation (ForwardContext::output_unused), which
/// is that of the block's last matrix.
StepWork block_work(const Job& job, const BlockMemory& memory, size_t index, bool again) {
  const auto& model = *job.model;
  const auto& block = model.blocks[index];
  const double tokens = product_rows(job, block);
  StepWork once = forward_work(job, memory, index), work = {};
  if (index < model.first_trained_block()) return once;
  for (size_t kind = 0; kind < work_kinds; ++kind) work[kind] = (again ? 4 : 3) * once[kind];
  if (block.kind == BlockKind::embedding) return work;
  const ParameterSpec* last = nullptr;
  for (const auto& parameter : block.parameters) {
    if (parameter.shape.size() != 2) continue;
    last = &parameter;
    if (!parameter.trainable) add_product(work, -tokens, parameter);
  }
  for (const auto& name : block.shared)
    if (const auto& parameter = *model.parameters()[model.slot(name)]; !parameter.trainable)
      add_product(work, -tokens, parameter);
  const bool output_unused = again && !joins_recomputation(model, job.recompute, index + 1);
  if (output_unused && last && block.kind == BlockKind::transformer) add_product(work, -tokens, *last);
  return work;
}

}  // namespace

const char* name_of(Work kind) {
  static const char* names[] = {"product FLOPs", "thin product FLOPs", "attention FLOPs",  "activation bytes",
                                "logits",        "block passes",       "recomputations",   "updates",
                                "copied bytes",  "collective calls",   "collective bytes", "steps"};
  return names[static_cast<size_t>(kind)];
}

namespace {

/// The products of muon's iterations: a matrix with its transpose, its square with itself, and with the matrix.
void add_iterations(StepWork& work, const std::vector<std::vector<int64_t>>& matrices, int64_t steps) {
  for (const auto& shape : matrices) {
    const auto side = static_cast<double>(std::min(shape[0], shape[1])),
               other = static_cast<double>(std::max(shape[0], shape[1])), times = static_cast<double>(steps);
    add_product(work, 2 * times * other, side, side);
    add_product(work, times * side, side, side);
  }
}

/// Bytes that are read and written to copy a parameter and its gradient, per element and micro-batch. `again`: its block is recomputed.
double copied_bytes(const Job& job, const ParallelPlan* plan, bool again) {
  const auto compute = static_cast<double>(bytes_of(job.precision.compute));
  // Autocast casts the parameter in each forward, and its gradient.
  if (!plan || plan->parameter != job.precision.compute)
    return (again ? 3 : 2) * (static_cast<double>(bytes_of(job.precision.parameter)) + compute);
  const bool adds = job.most_micro_batches() > 1 && !plan->reduce_every_micro_batch;
  return compute + (adds ? 2 : 1) * static_cast<double>(bytes_of(plan->accumulate));
}

}  // namespace

StepWork step_work(const Job& job, const ParallelPlan* plan, const MemoryParts& memory,
                   const std::vector<Traffic>& traffic) {
  StepWork work = {};
  auto micro_batches = static_cast<double>(job.accumulation);
  const BlockMemory blocks(job, plan ? plan->parameter : job.precision.parameter);
  for (size_t i = 0; i < job.model->blocks.size(); ++i) {
    const auto& block = job.model->blocks[i];
    const bool again = job.recomputes(i);
    StepWork all = block_work(job, blocks, i, again);
    for (size_t kind = 0; kind < work_kinds; ++kind) work[kind] += micro_batches * all[kind];
    if (again) at(work, Work::recomputations) += micro_batches * at(all, Work::block_passes) / 4;
    if (job.precision.autocast() && block.kind == BlockKind::transformer)
      at(work, Work::copied_bytes) +=
          micro_batches * static_cast<double>(block.parameter_count()) * copied_bytes(job, plan, again);
  }
  if (!memory.held_on_host) at(work, Work::updates) = static_cast<double>(memory.held) * job.update_passes();
  for (const auto& part : traffic) {
    at(work, Work::collective_calls) += static_cast<double>(part.calls);
    at(work, Work::collective_bytes) += static_cast<double>(part.payload_bytes);
  }
  at(work, Work::steps) = 1;
  return work;
}

namespace {

/// The value at `x` of the line through `points`, which are ascending; outside them the value of the nearest one.
double interpolated(const std::vector<std::pair<double, double>>& points, double x) {
  if (x <= points.front().first) return points.front().second;
  if (x >= points.back().first) return points.back().second;
  auto above = std::find_if(points.begin(), points.end(), [&](const auto& point) { return point.first >= x; });
  auto below = std::prev(above);
  double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace

double CollectiveCurve::seconds(double bytes) const {
  if (points.empty()) return 0;
  // Below the first point, latency dominates; above the last one, bandwidth.
  if (bytes >= points.back().first) return points.back().second * bytes / points.back().first;
  return interpolated(points, bytes);
}

std::optional<Rates> rates_of(const DeviceKind& kind, DType compute, int ranks_per_node) {
  Rates rates;
  rates.peak_flops = kind.peak_flops(compute);
  if (rates.peak_flops <= 0) return std::nullopt;
  rates.source = fmt::format("peaks of {} ({})", kind.name, kind.source);
  rates.peak_name = fmt::format("{}'s dense peak", kind.name);
  // The best matrix products reach 80 % of an H100's peak (ml-engineering, accelerator benchmarks). Those of a model
  // reach less, in particular in narrow layers.
  constexpr double best_products = 0.72, half_width = 300, attention = 0.7, achieved_bandwidth = 0.75;
  constexpr double launch_seconds = 60e-6;  // of all operators in one pass of a block
  double byte = 1 / (achieved_bandwidth * kind.memory_bandwidth);
  auto& seconds = rates.seconds;
  auto set = [&](Work work, double value) { seconds[static_cast<size_t>(work)] = value; };
  set(Work::product_flops, 1 / (best_products * rates.peak_flops));
  set(Work::thin_product_flops, half_width / (best_products * rates.peak_flops));
  set(Work::attention_flops, 1 / (attention * rates.peak_flops));
  set(Work::activation_bytes, 2 * byte);
  set(Work::logits, 5 * byte);
  set(Work::block_passes, launch_seconds / 3);
  set(Work::updates, 30 * byte);
  set(Work::copied_bytes, byte);
  set(Work::steps, 1e-3);
  rates.overlaps = true;
  rates.latency = 15e-6;
  rates.link_bandwidth = 0.8 * kind.link_bandwidth;
  rates.network_bandwidth = 0.8 * kind.network_bandwidth;
  rates.host_link_bandwidth = 20e9;
  // 4 to 4.5 G parameters a second and host (ZeRO-Offload, Ren et al. 2021, arXiv 2101.06840, table 4).
  rates.host_update_rate = 4e9 / ranks_per_node;
  rates.error = 0.25;
  return rates;
}

namespace {

/// The measured curve of this collective with the nearest number of ranks; nullptr: none. A reduce sends what a reduce_scatter sends,
/// and a transfer between two ranks about what an all_gather does. They have no curves of their own.
const std::pair<const std::pair<std::string, int>, CollectiveCurve>* nearest_curve(const Rates& rates,
                                                                                   const Traffic& part) {
  const std::pair<const std::pair<std::string, int>, CollectiveCurve>* nearest = nullptr;
  const std::string collective = part.collective == "reduce"     ? "reduce_scatter"
                                 : part.collective == "transfer" ? "all_gather"
                                                                 : part.collective;
  auto distance = [&](int ranks) { return std::abs(std::log(static_cast<double>(ranks) / part.ranks)); };
  for (const auto& curve : rates.curves)
    if (curve.first.first == collective && (!nearest || distance(curve.first.second) < distance(nearest->first.second)))
      nearest = &curve;
  return nearest;
}

/// With a measured curve, the time is proportional to the number of ranks, because all of them use the same memory.
///
/// Between nodes, a group uses the network adapters of all its ranks of a node in parallel: NCCL builds one ring per
/// adapter, and each ring carries its share. All bytes pass through the link of every device.
double collective_seconds(const Traffic& part, int local_size, const Rates& rates) {
  auto calls = static_cast<double>(part.calls), bytes = static_cast<double>(part.wire_bytes);
  if (const auto* curve = nearest_curve(rates, part))
    return calls * curve->second.seconds(static_cast<double>(part.payload_bytes) / calls) * part.ranks /
           curve->first.second;
  double seconds = bytes / rates.link_bandwidth;
  if (RankGroup{.stride = part.stride, .size = part.ranks}.spans_nodes(local_size))
    seconds = std::max(seconds, bytes / (std::max(1, local_size / part.stride) * rates.network_bandwidth));
  return calls * rates.latency * std::ceil(std::log2(part.ranks)) + seconds;
}

/// Gradients are copied to the host, the update runs there, and parameters are copied back. No overlap is assumed.
double offload_seconds(const HostWork& work, const Rates& rates) {
  if (work.copied_bytes == 0) return 0;
  return static_cast<double>(work.copied_bytes) / rates.host_link_bandwidth +
         static_cast<double>(work.updated) / rates.host_update_rate;
}

/// The inputs of recomputed blocks are copied to host memory during forward and back during backward.
double checkpoint_seconds(const StepLoad& load, const Rates& rates) {
  if (load.checkpoint_bytes == 0) return 0;
  return 2.0 * static_cast<double>(load.checkpoint_bytes) / rates.host_link_bandwidth;
}

}  // namespace

nlohmann::json StepLoad::to_json() const {
  auto counts = nlohmann::json::object();
  for (size_t kind = 0; kind < work_kinds; ++kind) counts[name_of(static_cast<Work>(kind))] = work[kind];
  auto calls = nlohmann::json::array();
  for (const auto& part : traffic)
    calls.push_back({{"collective", part.collective},
                     {"calls", part.calls},
                     {"payload_bytes", part.payload_bytes},
                     {"wire_bytes", part.wire_bytes},
                     {"ranks", part.ranks},
                     {"stride", part.stride},
                     {"axis", name_of(part.axis)}});
  return {{"work", counts},
          {"traffic", calls},
          {"local_size", local_size},
          {"host_bytes", host.copied_bytes},
          {"host_updates", host.updated},
          {"checkpoint_bytes", checkpoint_bytes},
          {"exposed", exposed},
          {"stretch", stretch},
          {"exposed_transfers", exposed_transfers},
          {"ring", ring}};
}

namespace {

/// The axis of traffic that was stored. Records without it have no other axes than data.
Axis axis_named(const std::string& name) {
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline})
    if (name == name_of(axis)) return axis;
  return Axis::data;
}

}  // namespace

std::optional<StepLoad> StepLoad::from_json(const nlohmann::json& json) {
  StepLoad load;
  const auto& counts = json.at("work");
  if (counts.size() != work_kinds) return std::nullopt;
  for (size_t kind = 0; kind < work_kinds; ++kind) {
    auto found = counts.find(name_of(static_cast<Work>(kind)));
    if (found == counts.end()) return std::nullopt;
    load.work[kind] = *found;
  }
  for (const auto& part : json.at("traffic"))
    load.traffic.push_back({.collective = part.at("collective"),
                            .calls = part.at("calls"),
                            .payload_bytes = part.at("payload_bytes"),
                            .wire_bytes = part.at("wire_bytes"),
                            .ranks = part.at("ranks"),
                            .stride = part.at("stride"),
                            .axis = axis_named(part.value("axis", ""))});
  load.local_size = json.at("local_size");
  load.host = {.copied_bytes = json.at("host_bytes"), .updated = json.at("host_updates")};
  load.checkpoint_bytes = json.at("checkpoint_bytes");
  load.exposed = json.value("exposed", decltype(load.exposed)());
  load.stretch = json.value("stretch", load.stretch);
  load.exposed_transfers = json.value("exposed_transfers", load.exposed_transfers);
  load.ring = json.value("ring", load.ring);
  return load;
}

double StepLoad::exposed_share(double ratio) const { return exposed.empty() ? 1 : interpolated(exposed, ratio); }

/// The kinds of work that are done for each micro-batch.
constexpr Work work_of_blocks[] = {
    Work::product_flops, Work::thin_product_flops, Work::attention_flops, Work::activation_bytes,
    Work::logits,        Work::block_passes,       Work::recomputations,  Work::copied_bytes};

std::optional<StepLoad> step_load(const Candidate& candidate) {
  const Entry& entry = *candidate.entry;
  const auto* pipeline = candidate.pipeline.get();
  const int slowest = pipeline ? pipeline->slowest() : 0;
  const Job job = pipeline ? pipeline->job_of_rank(candidate.job, slowest) : candidate.job;
  const MemoryParts& memory = pipeline ? pipeline->memory.of(slowest) : candidate.memory;
  if (candidate.memory.state_on_disk || !memory_known(entry) || !traffic_known(entry, job)) return std::nullopt;
  StepLoad load;
  load.traffic = entry.traffic(job);
  const auto plan = entry.plan ? std::optional(entry.plan(job)) : std::nullopt;
  load.work = step_work(job, plan ? &*plan : nullptr, memory, load.traffic);
  load.ring = job.model->context.divides() && job.model->context.form == ContextForm::ring;
  if (pipeline) {
    load.stretch = pipeline->stretch();
    load.exposed_transfers = pipeline->exposed_transfers;
    for (const Work kind : work_of_blocks) at(load.work, kind) *= load.stretch;
  }
  for (size_t number = 0; plan && number < job.optimizer_count(); ++number)
    add_iterations(load.work, matrices_of_update(job, *plan, number), job.optimizer_at(number).ns_steps);
  load.local_size = job.local_size;
  if (entry.host_work) load.host = entry.host_work(job);
  if (plan && job.accelerator.streams && job.world_size() > 1) load.exposed = exposed_communication(job, *plan);
  if (job.host_checkpoints) {
    auto sizes = runner::checkpoint_bytes(job);
    load.checkpoint_bytes = job.accumulation * std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  }
  return load;
}

std::optional<double> communication_seconds(const std::vector<Traffic>& traffic, int local_size, const Rates& rates) {
  double seconds = 0;
  for (const auto& part : traffic) {
    if (rates.link_bandwidth <= 0 && !nearest_curve(rates, part)) return std::nullopt;
    seconds += collective_seconds(part, local_size, rates);
  }
  return seconds;
}

double StepTime::total() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }

double StepTime::on_tokens() const {
  double seconds = 0;
  for (const Work kind :
       {Work::product_flops, Work::thin_product_flops, Work::attention_flops, Work::activation_bytes, Work::logits})
    seconds += parts[static_cast<size_t>(kind)];
  return seconds;
}

namespace {

/// The exposed part of the communication between data ranks. During overlap, computation is 10 % slower (as in the model of Galvatron,
/// Miao et al. 2022), which counts as exposed.
double exposed_between_data_ranks(const StepLoad& load, double seconds, double compute) {
  constexpr double slowdown = 0.1;
  const double exposed = compute > 0 ? load.exposed_share(seconds / compute) * seconds : seconds;
  return exposed + slowdown * (seconds - exposed);
}

double attention_seconds(const StepLoad& load, const Rates& rates) {
  const auto kind = static_cast<size_t>(Work::attention_flops);
  return load.work[kind] * rates.seconds[kind];
}

/// The part of `seconds` of communication along an axis in which the rank does not compute. `compute`: seconds of all computation.
double exposed_seconds(Axis axis, double seconds, const StepLoad& load, const Rates& rates, double compute) {
  switch (axis) {
    case Axis::tensor:  // blocks wait for it
      return seconds * load.stretch;
    case Axis::context:
      if (!load.ring || !rates.overlaps) return seconds * load.stretch;
      return std::max(0.0, seconds * load.stretch - attention_seconds(load, rates));
    case Axis::pipeline:
      return rates.overlaps ? seconds * load.exposed_transfers : seconds;
    default:
      return rates.overlaps ? exposed_between_data_ranks(load, seconds, compute) : seconds;
  }
}

/// The time that each axis adds.
std::vector<AxisTime> axis_times(const StepLoad& load, const Rates& rates, double compute) {
  std::vector<AxisTime> axes;
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::data, Axis::pipeline}) {
    AxisTime time{.axis = axis};
    for (const auto& part : load.traffic) {
      if (part.axis != axis) continue;
      time.wire_bytes += part.wire_bytes;
      time.seconds += collective_seconds(part, load.local_size, rates);
    }
    if (time.wire_bytes == 0) continue;
    time.exposed = exposed_seconds(axis, time.seconds, load, rates, compute);
    axes.push_back(time);
  }
  return axes;
}

}  // namespace

std::optional<StepTime> step_time(const StepLoad& load, const Rates& rates) {
  auto communication = communication_seconds(load.traffic, load.local_size, rates);
  if (!communication) return std::nullopt;
  StepTime time;
  time.communication = *communication;
  double compute = 0;
  for (size_t kind = 0; kind < work_kinds; ++kind) compute += time.parts[kind] = load.work[kind] * rates.seconds[kind];
  time.axes = axis_times(load, rates, compute);
  for (const auto& axis : time.axes) time.parts[communication_part] += axis.exposed;
  // Copies of activations overlap with computation. Only the rest adds to the time of the step.
  time.parts[offload_part] =
      offload_seconds(load.host, rates) + std::max(0.0, checkpoint_seconds(load, rates) - compute);
  return time;
}

}  // namespace runner
