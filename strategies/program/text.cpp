// Instructions as text, and the program of a step as a table to read: one line per instruction.
#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/program/program.hpp"

namespace runner {

const char* name_of(Op op) {
  switch (op) {
    case Op::update:
      return "update";
    case Op::gather_updated:
      return "gather_updated";
    case Op::start_read:
      return "start_read";
    case Op::start_gather:
      return "start_gather";
    case Op::wait_gather:
      return "wait_gather";
    case Op::release:
      return "release";
    case Op::forward:
      return "forward";
    case Op::recompute:
      return "recompute";
    case Op::backward:
      return "backward";
    case Op::backward_input:
      return "backward_input";
    case Op::backward_weight:
      return "backward_weight";
    case Op::start_reduce:
      return "start_reduce";
    case Op::wait_reduce:
      return "wait_reduce";
    case Op::receive_input:
      return "receive_input";
    case Op::send_output:
      return "send_output";
    case Op::receive_gradient:
      return "receive_gradient";
    case Op::send_gradient:
      return "send_gradient";
    case Op::norm:
      return "norm";
  }
  return "";
}

std::string to_text(const Instruction& instruction) {
  std::string text = name_of(instruction.op);
  if (instruction.block != Instruction::none)
    return text + fmt::format(" block {} of micro-batch {}", instruction.block, instruction.micro_batch);
  if (instruction.unit != Instruction::none) text += fmt::format(" unit {}", instruction.unit);
  if (instruction.axis == Axis::replicate) text += " over replicas";
  if (instruction.axis == Axis::tensor) text += " over the tensor axis";
  if (instruction.axis == Axis::pipeline) text += " over the stages that share a parameter";
  return text;
}

std::vector<std::string> names_of_units(const ModelSpec& model, const ParallelPlan& plan) {
  std::vector<size_t> block_of_slot;
  for (size_t b = 0; b < model.blocks.size(); ++b)
    block_of_slot.insert(block_of_slot.end(), model.blocks[b].parameters.size(), b);
  std::vector<std::string> names;
  for (const auto& unit : plan.units) {
    const auto& first = model.blocks[block_of_slot[unit.slots.front()]].name;
    const auto& last = model.blocks[block_of_slot[unit.slots.back()]].name;
    names.push_back(first == last ? first : first + " to " + last);
  }
  return names;
}

namespace {

/// The collective that an instruction starts; empty if there is none.
std::string communication(const Instruction& i, const UnitCollectives& collectives, const ParallelPlan& plan) {
  if (i.op == Op::start_reduce && plan.own_reducer)
    return plan.reducer.name.empty() ? "by the function `reduce`" : "by " + plan.reducer.name;
  const auto call = collectives.of(i);
  return call ? fmt::format("{} over {}", format_bytes(call->calls * call->bytes), counted(call->ranks, "rank")) : "";
}

}  // namespace

std::string program_text(const Job& job, const ParallelPlan& plan) {
  // In a pipeline, the order of instructions depends on the number of micro-batches.
  const int64_t shown = job.model->stage ? job.accumulation : std::min(job.accumulation, distinct_micro_batches);
  const auto names = names_of_units(*job.model, plan);
  const UnitCollectives collectives(job, plan);
  std::string text;
  for (const auto& i : step_program(*job.model, plan, job.recompute, shown)) {
    std::string what = i.block != Instruction::none  ? job.model->blocks[i.block].name
                       : i.unit != Instruction::none ? names[i.unit]
                                                     : "";
    std::string details = communication(i, collectives, plan);
    if (i.block != Instruction::none && job.accumulation > 1)
      details = fmt::format("micro-batch {}", i.micro_batch + 1u == shown ? job.accumulation - 1 : i.micro_batch);
    auto line = fmt::format("{:<16} {:<24} {}", name_of(i.op), what, details);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (const int64_t last = job.accumulation - 2; job.accumulation > shown)
    text += fmt::format("{} the same instructions as micro-batch 1.\n",
                        last == 2 ? "Micro-batch 2 has" : fmt::format("Micro-batches 2 to {} have", last));
  return text;
}

}  // namespace runner
