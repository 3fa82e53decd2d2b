#include "strategies/executor/instruction_spans.hpp"

namespace runner {

/// Freeing a gathered copy is no collective, and it is a part of none of the phases.
SpanName span_of(const Instruction& instruction) {
  const auto phase = [&] {
    switch (instruction.op) {
      case Op::forward:
        return Phase::forward;
      case Op::recompute:
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weight:
        return Phase::backward;
      case Op::update:
      case Op::norm:
        return Phase::update;
      case Op::start_read:
        return Phase::data;
      case Op::release:
        return Phase::step;
      default:
        return Phase::collective;
    }
  };
  const auto index = [](uint16_t value) { return value == Instruction::none ? -1 : int32_t{value}; };
  return {phase(), name_of(instruction.op), index(instruction.block), index(instruction.unit)};
}

ShardEvents with_spans(ShardEvents events, SpanRecorder* spans) {
  if (!spans) return events;
  events.update_begins = [spans, then = std::move(events.update_begins)](size_t unit) {
    spans->begin({Phase::update, "update", -1, static_cast<int32_t>(unit)});
    if (then) then(unit);
  };
  events.update_ended = [spans, then = std::move(events.update_ended)](size_t unit) {
    if (then) then(unit);
    spans->end();
  };
  return events;
}

}  // namespace runner
