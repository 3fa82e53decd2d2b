// Writes the programs that an engine runs on its devices: the step of a plan, its parts, and validation. Each device runs the same program
// with its own arguments.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/contract/module.hpp"
#include "strategies/xla/arrays.hpp"
#include "strategies/xla/trace.hpp"

namespace runner::xla {

/// The form of a program. A step with one micro-batch is one program; with several, one for each of them, of which the last one updates.
struct ProgramForm {
  bool differentiates =
      true;  ///< forward and backward of a micro-batch; false with `updates`: the gradients are arguments
  bool updates = true;
  bool accumulates = false;             ///< gradients of earlier micro-batches are arguments
  bool reduces = true;                  ///< the gradients are summed over the devices
  std::vector<pjrt::Type> fields = {};  ///< of the micro-batch on one device

  /// The form for one of the micro-batches of a step. Without `updates`, the update is a program of its own.
  static ProgramForm of_micro_batch(bool first, bool last, bool updates) {
    return {.differentiates = true, .updates = updates && last, .accumulates = !first, .reduces = last};
  }
  bool validates() const { return !differentiates && !updates; }
  bool takes_states() const { return updates; }
  bool takes_gradients() const { return accumulates || (updates && !differentiates); }
  std::string name()
      const;  ///< what it does: "step", "first micro-batch", "last micro-batch and update", "update", "validation"
  std::string key() const;  ///< name() and a line that differs from that of every other form
};

struct ProgramText {
  std::string text;
  size_t arguments = 0;
};

/// How gradients are changed before an update.
struct Clipping {
  std::optional<double> norm, value;
};

/// Arguments, in this order, as the form needs them:
///   parameters (all), states (of each trained parameter), gradients (of each trained parameter), fields of the micro-batch,
///   the factor of the loss, the key of dropout and the first row (StepNumbers), and the numbers of the update: those of each
///   group, and what gradients are divided by before they are clipped.
/// Results, in this order:
///   with an update: parameters (trained ones), states; without: gradients;
///   with a backward: the summed loss of all devices; with an update: the squared norm of the gradients. Both have the type float64 or
///   float32, [] .
/// The results of a validation are the sums that the model returns, of this device.
class ProgramWriter {
 public:
  /// All must outlive the writer. `job` says which blocks are recomputed.
  ProgramWriter(Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
                const OptimizerConfig& optimizer, const Clipping& clipping);

  /// Throws Error(run_failed) with the name of an operator that cannot be compiled, and the block that uses it.
  ProgramText write(const ProgramForm& form, const TokenLoss* loss = nullptr);

 private:
  Model& model_;
  const Job& job_;
  const ParallelPlan& plan_;
  const Arrays& arrays_;
  const OptimizerConfig& optimizer_;
  Clipping clipping_;
  Constants constants_;
};

}  // namespace runner::xla
