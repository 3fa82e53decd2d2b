// One optimizer step of a rank as a list of instructions. step_program() writes the list from the model and the plan. The executor
// (strategies/executor) executes it. Memory, traffic and host work are computed from it. This header is torch-free.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "strategies/program/parallel_plan.hpp"
#include "strategies/program/tensor_sum.hpp"

namespace runner {

enum class Op : uint8_t {
  update,  ///< the optimizer updates this rank's shard of a unit. If that overlaps with forward, forward waits here
  gather_updated,    ///< a resident unit's updated shards are gathered on all ranks
  start_read,        ///< the read of a unit's shard from its file starts
  start_gather,      ///< the gather of a unit starts
  wait_gather,       ///< computation waits until the unit is gathered
  release,           ///< the gathered copy of a unit is freed
  forward,           ///< of a block. Saves what its backward needs, or only its input if the block is recomputed
  recompute,         ///< the forward of a recomputed block again, before the backward of its layer
  backward,          ///< of a block. Its parameters' gradients are added to the buffers of their units
  backward_input,    ///< the first part of a split backward: without the products for the gradients of matrices
  backward_weight,   ///< the second part: these products. It reads no parameters. Of blocks with trained matrices
  start_reduce,      ///< the sum of a unit's gradients over the ranks of an axis starts
  wait_reduce,       ///< computation waits until the sum is there
  receive_input,     ///< the input of a block arrives from the stage before
  send_output,       ///< the output of a block goes to the next stage
  receive_gradient,  ///< the gradient of a block's output arrives from the next stage
  send_gradient,     ///< the gradient of a block's input goes to the stage before
  norm,  ///< the ranks exchange the norm of all gradients, the loss and their state. The executor ends here:
         ///< Strategy::step() then updates all units and gathers them
};

struct Instruction {
  static constexpr uint16_t none = std::numeric_limits<uint16_t>::max();
  Op op = Op::norm;
  Axis axis = Axis::none;              ///< of the plan's mesh: the ranks along it take part
  uint16_t unit = none, block = none;  ///< an instruction is about one of them; the norm is about none
  uint32_t micro_batch = 0;            ///< during which it is executed
  bool operator==(const Instruction&) const = default;
};

using Program = std::vector<Instruction>;

/// The micro-batches between the first and the last are alike, so a step with this number stands for any larger number.
constexpr int64_t distinct_micro_batches = 3;

/// Whether an instruction is a backward, or the part of one that computes the gradient of the block's input.
constexpr bool passes_back(Op op) { return op == Op::backward || op == Op::backward_input; }

/// Whether an instruction is a transfer between stages of a pipeline.
constexpr bool is_transfer(Op op) {
  return op == Op::receive_input || op == Op::send_output || op == Op::receive_gradient || op == Op::send_gradient;
}

/// The steady step of a plan: an update that overlaps with the next forward is at the beginning. `recompute`: one per block. Of a stage of
/// a pipeline: in the order of the plan's schedule. Its units stay gathered until its last backward, and gradients are reduced once.
Program step_program(const ModelSpec& model, const ParallelPlan& plan, const std::vector<bool>& recompute,
                     int64_t micro_batches);

/// An instruction that stands for `count` equal ones, in as many micro-batches.
struct RepeatedInstruction {
  Instruction instruction;
  int64_t count = 1;
};
/// The instructions of a step of the job. Of many micro-batches, the second one stands for all between the first and the last.
std::vector<RepeatedInstruction> repeated_instructions(const Job& job, const ParallelPlan& plan);

/// A forward pass without backward, as in validation.
Program forward_program(const ModelSpec& model, const ParallelPlan& plan);

/// The collectives that the instructions of a program start.
class UnitCollectives {
 public:
  /// Job and plan must outlive this object.
  UnitCollectives(const Job& job, const ParallelPlan& plan);
  struct Call {
    Collective kind;
    int ranks, stride;  ///< of the group
    int64_t calls;      ///< a unit that is gathered by broadcasts needs one from each rank
    int64_t bytes;      ///< payload of one call
  };
  /// nullopt: none. A Reducer's collectives are not known.
  std::optional<Call> of(const Instruction& instruction) const;
  const FlatLayout& layout(size_t unit) const { return layouts_[unit]; }
  /// The bytes of a quantized unit.
  const QuantizedBytes& packed(size_t unit) const { return packed_[unit]; }

 private:
  const ParallelPlan& plan_;
  std::vector<FlatLayout> layouts_;
  std::vector<TensorSum> tensor_sums_;
  int64_t tied_elements_ = 0;  ///< of the parameter that the first and the last stage share
  std::vector<QuantizedBytes> packed_;
};

/// "start_gather".
const char* name_of(Op op);
/// "start_gather unit 1", "backward block 3 of micro-batch 0".
std::string to_text(const Instruction& instruction);

/// Units by the blocks whose parameters they have: "blocks.3", "blocks.0 to blocks.3".
std::vector<std::string> names_of_units(const ModelSpec& model, const ParallelPlan& plan);
/// The instructions of a step of the job, one per line, with the names of blocks and the bytes of collectives.
std::string program_text(const Job& job, const ParallelPlan& plan);
/// The memory of a step of the job at its peak.
MemoryParts program_memory(const Job& job, const ParallelPlan& plan);
/// The collectives of a step of the job, by kind and group, without those of a Reducer.
std::vector<Traffic> program_traffic(const Job& job, const ParallelPlan& plan);
/// The share of communication between data ranks in a step of the job that is exposed, which means not hidden by computation. Returns pairs
/// (communication time / computation time, exposed share), ascending. Computed from the program: a collective starts when computation
/// reaches its start, collectives run one after another, and computation stops at a wait until the collective has ended.
std::vector<std::pair<double, double>> exposed_communication(const Job& job, const ParallelPlan& plan);
/// The copies to and from host memory of a step of the job, and the parameters that the CPU updates.
HostWork program_host_work(const Job& job, const ParallelPlan& plan);

}  // namespace runner
