// Pipeline schedules as data: the order in which each rank computes its stages for the micro-batches of a step. Torch-free.
//
// Blocks are divided into p x v virtual stages; rank i of p has the stages i, p + i, ..., (v - 1)p + i. With m micro-batches and equal
// stages, F, B, I and W are the times of a rank for one micro-batch: its forward, its backward, and the two parts of the backward, which
// compute the gradient of the input and those of the weights. A step takes m(F + B) and:
//
//   schedule           time beyond m(F + B)     activations on rank i, of micro-batches         source
//   gpipe              (p-1)(F+B)               m                                               Huang et al. 2018, arXiv 1811.06965
//   1f1b               (p-1)(F+B)               min(p-i, m)                                     Narayanan et al. 2019 and 2021,
//   interleaved_1f1b   (p-1)(F+B)/v             min(2(p-1-i)+(v-1)g+1, vm), of one stage each     arXiv 1806.03377 and 2104.04473
//   zb_h1              (p-1)(F+I-W)             min(p, m)                                       Qi et al. 2023, arXiv 2401.10241
//
// The times of interleaved_1f1b and zb_h1 hold if m >= p, and the latter if W <= F and W <= I. For interleaved_1f1b, g is the size of the
// largest group. Megatron's groups have g micro-batches, and the last one has the rest. That takes longer, and if the rest is below p,
// ranks can wait for each other for ever (p = 4, v = 3, m = 5, g = 4). Here groups are as equal as possible. If g divides m, both are
// the same.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace runner {

enum class PipelineSchedule : uint8_t {
  gpipe,             ///< all forwards, then all backwards
  one_f_one_b,       ///< "1f1b": after p-1-i forwards, a forward and a backward in turn
  interleaved_1f1b,  ///< several virtual stages a rank; the micro-batches go through each of them in groups of g
  zb_h1,             ///< 1f1b with each backward in two parts; the parts for weights fill gaps
};
/// "gpipe", "1f1b", "interleaved_1f1b", "zb_h1".
const char* name_of(PipelineSchedule schedule);
const std::vector<std::string>& pipeline_schedule_names();
/// The inverse of name_of(). Throws Error(usage) with the names and the nearest one.
PipelineSchedule pipeline_schedule(const std::string& name);
/// Whether backwards have two parts: ActionKind::backward_input and backward_weight.
constexpr bool splits_backward(PipelineSchedule schedule) { return schedule == PipelineSchedule::zb_h1; }

/// The shape of a pipeline, on which an order of computations depends.
struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int ranks = 1;           ///< p
  int virtual_stages = 1;  ///< v, of each rank
  int micro_batches = 1;   ///< m, of one step
  /// g, of interleaved_1f1b: the micro-batches are divided evenly into groups of at least so many. 0: as many as ranks.
  int group = 0;

  int stages() const { return ranks * virtual_stages; }
  int rank_of(int stage) const { return stage % ranks; }
  /// Numbers of micro-batches that go through a virtual stage in a row; larger groups first. Only interleaved_1f1b has several.
  std::vector<int> groups() const;
};

enum class ActionKind : uint8_t {
  forward,
  backward,         ///< both parts
  backward_input,   ///< the gradient of the stage's input
  backward_weight,  ///< the gradients of the stage's weights
  receive_activation,
  send_activation,
  receive_gradient,
  send_gradient,
};
/// "backward_input".
const char* name_of(ActionKind kind);
bool is_transfer(ActionKind kind);

/// A computation of `stage`, or a transfer between `stage` and a neighbour: activations come from stage - 1 and go to stage + 1, gradients
/// come from stage + 1 and go to stage - 1.
struct PipelineAction {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  ///< of all p x v virtual stages
  int micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};
/// The other stage of a transfer.
int peer_stage(const PipelineAction& transfer);
/// The actions of each rank, in order.
using PipelineOrder = std::vector<std::vector<PipelineAction>>;

/// Why a shape cannot be scheduled, and the nearest value that can; nullopt if it can.
std::optional<std::string> refuse_pipeline(const PipelineShape& shape);
/// Notes on what makes ranks of this shape wait longer than others would.
std::vector<std::string> pipeline_notes(const PipelineShape& shape);

/// The computations of a training step, without transfers. For each stage, backwards and their parts are in the order of the micro-batches,
/// so gradients are summed in that order. Throws Error(usage) with the text of refuse_pipeline().
PipelineOrder training_order(const PipelineShape& shape);
/// The forwards alone, as an evaluation needs them.
PipelineOrder forward_order(const PipelineShape& shape);

/// "F0 F1 B0"; I and W are the parts of a backward. With several virtual stages, letters name those of the rank: "F0a F0b".
/// Transfers: "a0" and "A0" receive and send an activation, "g0" and "G0" a gradient.
std::string to_text(const PipelineAction& action, const PipelineShape& shape);
std::string to_text(const std::vector<PipelineAction>& actions, const PipelineShape& shape);

}  // namespace runner
