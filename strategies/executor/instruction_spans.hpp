// The spans of a profile (span_recorder.hpp) that instructions and updates in the background are recorded as.
#pragma once
#include "runner/base/span_recorder.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/program/program.hpp"

namespace runner {

/// The phase that an instruction is a part of. Freeing a gathered copy is no collective, and it is a part of none of the others.
inline Phase phase_of(Op op) {
  if (op == Op::forward) return Phase::forward;
  if (op == Op::recompute || op == Op::backward_weight || passes_back(op)) return Phase::backward;
  if (op == Op::update || op == Op::norm) return Phase::update;
  if (op == Op::start_read) return Phase::data;
  return op == Op::release ? Phase::step : Phase::collective;
}

inline SpanName span_of(const Instruction& instruction) {
  const auto index = [](uint16_t value) { return value == Instruction::none ? -1 : int32_t{value}; };
  return {phase_of(instruction.op), name_of(instruction.op), index(instruction.block), index(instruction.unit)};
}

/// `events`, and spans of the updates that run in the background. `spans` may be null.
inline ShardEvents with_spans(ShardEvents events, SpanRecorder* spans) {
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
