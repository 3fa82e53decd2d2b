// Computes from the program of a step how much of the communication between data ranks is hidden by computation.
#include <algorithm>
#include <cmath>
#include <map>

#include "strategies/program/program.hpp"
#include "strategies/program/split_backward.hpp"
#include "strategies/program/update_work.hpp"

namespace runner {

namespace {

/// An instruction, and its share of the total time of computation or of communication.
struct Timed {
  enum class Kind { compute, start, wait };
  Kind kind;
  size_t request = 0;  ///< of a start and its wait
  double share = 0;    ///< of all computation, or of all communication
};

/// The bytes that a rank sends because of an instruction that starts a collective; nullopt for other instructions. What a Lua file
/// sends is not known. If it communicates during backward, a reduction of the unit's gradients stands for it. What a built-in reducer
/// sends in a step is divided among the units by their size.
std::optional<int64_t> bytes_sent(const UnitCollectives& collectives, const Job& job, const ParallelPlan& plan,
                                  const Instruction& i) {
  if (const auto call = collectives.of(i)) return call->calls * ring_bytes(call->kind, call->bytes, call->ranks);
  const bool stands = plan.own_reducer && plan.reduces_in_backward && i.op == Op::start_reduce;
  if (!stands || job.world_size() == 1) return std::nullopt;
  if (!plan.reducer.name.empty()) {
    double sent = 0, elements = 0;
    for (const auto& traffic : plan.reducer.traffic) sent += static_cast<double>(traffic.wire_bytes);
    for (const size_t u : trained_units(plan)) elements += static_cast<double>(collectives.layout(u).total);
    return static_cast<int64_t>(sent * static_cast<double>(collectives.layout(i.unit).total) / std::max(1.0, elements));
  }
  return ring_bytes(is_sharded(plan, plan.units[i.unit]) ? Collective::reduce_scatter : Collective::all_reduce,
                    collectives.layout(i.unit).total * bytes_of(plan.reduce), job.world_size());
}

/// FLOPs per token of an instruction about a block. Transfers between stages have none.
double flops_per_token(const ModelSpec& model, const Instruction& i) {
  switch (i.op) {
    case Op::forward:
    case Op::recompute:
      return model.blocks[i.block].forward_flops_per_token;
    case Op::backward:
      return model.backward_flops_per_token(i.block);
    case Op::backward_input:
      return model.backward_flops_per_token(i.block) - weight_flops_per_token(model, i.block);
    case Op::backward_weight:
      return weight_flops_per_token(model, i.block);
    default:
      return 0;
  }
}

/// The instructions that take time. Blocks take time in proportion to their FLOPs, collectives to the bytes that a rank sends. A
/// micro-batch that stands for several takes as long as all of them.
std::vector<Timed> timed(const Job& job, const ParallelPlan& plan) {
  using Kind = Timed::Kind;
  const UnitCollectives collectives(job, plan);
  std::vector<Timed> list;
  std::map<std::pair<size_t, bool>, size_t> running;  // requests by unit and whether it is a gather
  double computation = 0, communication = 0;
  size_t requests = 0;
  for (const auto& [i, repeats] : repeated_instructions(job, plan)) {
    const auto count = static_cast<double>(repeats);
    if (is_transfer(i.op) || i.axis == Axis::tensor || i.axis == Axis::pipeline) continue;
    if (i.block != Instruction::none) {
      const double share = count * flops_per_token(*job.model, i);
      list.push_back({.kind = Kind::compute, .share = share});
      computation += share;
    } else if (const auto bytes = bytes_sent(collectives, job, plan, i)) {
      const double share = count * static_cast<double>(*bytes);
      communication += share;
      list.push_back({.kind = Kind::start, .request = requests, .share = share});
      if (i.op == Op::gather_updated)
        list.push_back({.kind = Kind::wait, .request = requests});
      else
        running[{i.unit, i.op == Op::start_gather}] = requests;
      ++requests;
    } else if (i.op == Op::wait_gather || i.op == Op::wait_reduce) {
      const auto found = running.find({i.unit, i.op == Op::wait_gather});
      if (found != running.end()) list.push_back({.kind = Kind::wait, .request = found->second});
    }
  }
  // The collectives of the update follow, one after another.
  for (const auto& call : calls_of_update(job, plan)) {
    const auto share = static_cast<double>(ring_bytes(call.kind, call.bytes, plan.shards()));
    communication += share;
    list.push_back({.kind = Kind::start, .request = requests, .share = share});
    list.push_back({.kind = Kind::wait, .request = requests++});
  }
  if (computation == 0 || communication == 0) return {};
  for (auto& one : list) one.share /= one.kind == Kind::compute ? computation : communication;
  return list;
}

/// Seconds of a step whose computation takes 1 s and whose communication takes `ratio` s.
double seconds(const std::vector<Timed>& list, double ratio) {
  double computed = 0, communicated = 0;  // the times at which the two are free
  std::vector<double> end(list.size());
  for (const auto& one : list) switch (one.kind) {
      case Timed::Kind::compute:
        computed += one.share;
        break;
      case Timed::Kind::start:
        communicated = end[one.request] = std::max(communicated, computed) + ratio * one.share;
        break;
      case Timed::Kind::wait:
        computed = std::max(computed, end[one.request]);
        break;
    }
  return computed;
}

}  // namespace

std::vector<std::pair<double, double>> exposed_communication(const Job& job, const ParallelPlan& plan) {
  const auto list = timed(job, plan);
  std::vector<std::pair<double, double>> points;
  if (list.empty()) return points;
  for (int power = -5; power <= 4; ++power) {
    const double ratio = std::exp2(power);
    points.emplace_back(ratio, (seconds(list, ratio) - 1) / ratio);
  }
  return points;
}

}  // namespace runner
