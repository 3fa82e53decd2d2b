// The spans of a profile (span_recorder.hpp) that instructions and updates in the background are recorded as.
#pragma once
#include "runner/base/span_recorder.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/program/program.hpp"

namespace runner {

SpanName span_of(const Instruction& instruction);
/// `events`, and spans of the updates that run in the background. `spans` may be null.
ShardEvents with_spans(ShardEvents events, SpanRecorder* spans);

}  // namespace runner
