// Plays the orders of all ranks of a pipeline with given durations: time of a step, idle ranks, live activations, deadlocks. Torch-free.
//
// A rank carries out its actions one after the other. A send waits for a free place in the buffer of its channel, a receive waits for the
// message and frees its place. There is one channel for each pair of neighbours, direction and kind (activation or gradient). Messages
// have no tags: a channel delivers them in the order of the sends.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "strategies/pipeline/schedule.hpp"

namespace runner {

/// Durations for one micro-batch, in any unit; all results are in the same unit.
struct StageTime {
  double forward = 1;
  double backward = 2;
  double backward_input = 1, backward_weight = 1;  ///< the two parts of a split backward
};

struct PipelineTiming {
  std::vector<StageTime> stages = {};  ///< of each virtual stage; empty: all as StageTime says
  double latency = 0;                  ///< from a send until the message can be received; the sender goes on meanwhile
  int buffer = 1;                      ///< messages that a channel holds
};
constexpr int unlimited_buffer = std::numeric_limits<int>::max();

struct PlayedAction {
  PipelineAction action;
  double start = 0, end = 0;  ///< of a transfer: when the rank came to it, and when the rank could go on
};

struct PipelineSimulation {
  double end = 0;  ///< of the last action
  std::vector<std::vector<PlayedAction>> ranks;
  std::vector<double> idle;  ///< of each rank: share of the time until `end` in which it does not compute
  /// Largest number of micro-batches whose activations a virtual stage holds, from the start of a forward to the end of the backward or of
  /// its weight part; and the largest sum over the stages of a rank. They do not depend on durations.
  std::vector<int> stage_peak, rank_peak;
  /// Empty if every action was played. Otherwise, either the first action that the orders do not allow, or who waits for whom, with a line
  /// for each rank that waits. The other results describe the part that was played.
  std::vector<std::string> problems;
};

/// `order` can be any lists of actions. It needs transfers (transfers.hpp) if there are several ranks.
/// Takes time in proportion to the number of actions.
PipelineSimulation simulate(const PipelineShape& shape, const PipelineOrder& order, const PipelineTiming& timing);

// The time of a step with any number of micro-batches, from plays of steps with few. Torch-free.

/// A number of micro-batches after which a rank frees as many activations as it keeps, and ranks wait as long for the next one as for each
/// of the later ones. It is a multiple of the ranks, so groups of interleaved_1f1b are equal.
inline int settled_micro_batches(const PipelineShape& shape) { return 4 * shape.ranks; }

/// The shape with at most settled_micro_batches().
PipelineShape settled(PipelineShape shape);

/// Whether a step with more micro-batches only repeats what ranks do: groups of interleaved_1f1b must be equal.
bool repeats(const PipelineShape& shape);

/// The end of the last action in a step of training_order_with_transfers(). If the step repeats what ranks do, it plays
/// five micro-batches for each rank at most: each further micro-batch for each rank takes as long as the fifth. With
/// equal stages this is exact, and within 2 % if their times differ by up to 30 %.
double step_length(const PipelineShape& shape, const PipelineTiming& timing);

}  // namespace runner
