// Reads the collectives and the host work of a step from its program.
#include <algorithm>
#include <map>

#include "strategies/program/block_calls.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/program.hpp"
#include "strategies/program/update_work.hpp"

namespace runner {

namespace {

/// A channel between two stages (executor/stage_transfers.hpp).
struct ChannelOfStages {
  int lower_rank = 0;
  bool gradients = false;
  auto operator<=>(const ChannelOfStages&) const = default;
};

struct Sum {
  int64_t calls = 0, bytes = 0;
  void add(int64_t more_calls, int64_t more_bytes) { calls += more_calls, bytes += more_bytes; }
};

/// The messages of each channel of this rank.
std::map<ChannelOfStages, Sum> messages(const Job& job, const ParallelPlan& plan) {
  std::map<ChannelOfStages, Sum> sums;
  if (!job.model->stage) return sums;
  for (const auto& [i, count] : repeated_instructions(job, plan)) {
    if (!is_transfer(i.op)) continue;
    const auto& stage = *job.model->stage;
    const bool of_input = i.op == Op::receive_input || i.op == Op::send_gradient;
    const int lower = (stage.stage_of[i.block] - (of_input ? 1 : 0)) % stage.ranks;
    const bool gradients = i.op == Op::receive_gradient || i.op == Op::send_gradient;
    sums[{.lower_rank = lower, .gradients = gradients}].add(
        count, count * (of_input ? input_bytes(job, i.block) : output_bytes(job, i.block)));
  }
  return sums;
}

}  // namespace

UnitCollectives::UnitCollectives(const Job& job, const ParallelPlan& plan) : plan_(plan) {
  if (const auto& stage = job.model->stage; stage && stage->tied && (stage->has_first || stage->has_last))
    tied_elements_ = job.model->numel(job.model->slot(*stage->tied));
  const auto parameters = job.model->parameters();
  for (const auto& unit : plan.units) {
    layouts_.push_back(layout_of(parameters, plan, unit));
    tensor_sums_.push_back(tensor_sum(*job.model, layouts_.back()));
    packed_.push_back(unit.quantized ? quantized_bytes(job, plan, unit) : QuantizedBytes());
  }
}

std::optional<UnitCollectives::Call> UnitCollectives::of(const Instruction& i) const {
  const bool gathers = i.op == Op::start_gather || i.op == Op::gather_updated;
  if (i.unit == Instruction::none || (!gathers && (i.op != Op::start_reduce || plan_.own_reducer))) return std::nullopt;
  const Mesh& mesh = plan_.mesh;
  Call call{.kind = Collective::all_gather,
            .ranks = mesh.size(i.axis),
            .stride = mesh.stride(i.axis),
            .calls = 1,
            .bytes = layouts_[i.unit].total};
  const bool quantized = plan_.units[i.unit].quantized;
  if (call.ranks == 1 || (quantized && !is_sharded(plan_, plan_.units[i.unit]))) return std::nullopt;
  if (i.axis == Axis::pipeline) {
    call.kind = Collective::all_reduce;
    call.ranks = 2;
    call.stride *= mesh.size(i.axis) - 1;
    call.bytes = tied_elements_ * bytes_of(plan_.reduce);
    return call;
  }
  if (i.axis == Axis::tensor) {
    call.kind = Collective::all_reduce;
    call.bytes = tensor_sums_[i.unit].elements * bytes_of(plan_.reduce);
    return call;
  }
  if (quantized) call.bytes = packed_[i.unit].sent;
  if (quantized) return call;
  call.bytes *= bytes_of(gathers ? plan_.parameter : plan_.reduce);
  if (i.axis == Axis::replicate) call.bytes /= plan_.shards();
  if (!gathers)
    call.kind =
        i.axis == Axis::replicate || plan_.reduce_by_all_reduce ? Collective::all_reduce : Collective::reduce_scatter;
  if (i.op == Op::gather_updated && plan_.gather_by_broadcast) {
    call.kind = Collective::broadcast;
    call.calls = plan_.shards();
    call.bytes /= plan_.shards();
  }
  return call;
}

std::vector<Traffic> program_traffic(const Job& job, const ParallelPlan& plan) {
  struct Key {
    Collective kind;
    int ranks, stride;
    Axis axis;
    bool incoming = false;  ///< of messages: from the rank before
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Sum> sums;
  const UnitCollectives collectives(job, plan);
  for (const auto& [i, count] : repeated_instructions(job, plan)) {
    for (const auto& call : block_calls(job, plan, i))
      sums[{.kind = call.kind,
            .ranks = call.ranks,
            .stride = call.stride,
            .axis = call.axis,
            .incoming = call.incoming}]
          .add(count * call.calls, count * call.bytes);
    const auto call = collectives.of(i);
    if (!call) continue;
    const bool of_data = i.axis == Axis::replicate || i.axis == Axis::shard;
    sums[{.kind = call->kind, .ranks = call->ranks, .stride = call->stride, .axis = of_data ? Axis::data : i.axis}].add(
        count * call->calls, count * call->calls * call->bytes);
  }
  for (const auto& call : calls_of_update(job, plan))
    sums[{.kind = call.kind, .ranks = plan.shards(), .stride = plan.mesh.stride(Axis::shard), .axis = Axis::data}].add(
        1, call.bytes);
  std::vector<Traffic> list = plan.reducer.traffic;
  for (const auto& [key, sum] : sums)
    list.push_back(make_traffic(key.kind, key.ranks, sum.calls, sum.bytes, key.stride, key.axis));
  for (const auto& [channel, sum] : messages(job, plan)) {
    const int ranks = plan.mesh.size(Axis::pipeline);
    const int apart = channel.lower_rank + 1 < ranks ? 1 : ranks - 1;  // the last rank sends to the first one
    list.push_back(make_traffic(Collective::transfer, 2, sum.calls, sum.bytes, apart * plan.mesh.stride(Axis::pipeline),
                                Axis::pipeline));
  }
  return list;
}

/// Gradients are copied to the host after each reduction. New values are copied back after the update if the shards are on
/// the device, otherwise at each gather.
HostWork program_host_work(const Job& job, const ParallelPlan& plan) {
  HostWork work;
  if (!plan.separate_host) return work;
  const bool on_host = plan.optimizer != Tier::device;
  const auto stays = [](const Unit& unit) { return unit.resident || unit.tier == Tier::device; };
  if (!on_host && std::ranges::all_of(plan.units, stays)) return work;
  const Axis last_axis = plan.copies() > 1 ? Axis::replicate : plan.shards() > 1 ? Axis::shard : Axis::none;
  const UnitCollectives collectives(job, plan);
  for (const auto& [i, count] : repeated_instructions(job, plan)) {
    if (i.unit == Instruction::none) continue;
    const int64_t shard = collectives.layout(i.unit).shard;
    const bool on_device = stays(plan.units[i.unit]);
    if (i.op == Op::update && on_host) {
      work.updated += count * shard;
      if (on_device) work.copied_bytes += count * shard * bytes_of(plan.parameter);
    }
    if (i.op == Op::start_reduce && i.axis == last_axis && on_host)
      work.copied_bytes += count * shard * bytes_of(plan.gradient);
    if (i.op == Op::start_gather && !on_device)
      work.copied_bytes +=
          count * (plan.units[i.unit].quantized ? collectives.packed(i.unit).shard : shard * bytes_of(plan.parameter));
  }
  return work;
}

}  // namespace runner
