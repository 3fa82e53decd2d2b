// Updates offloaded parameters on a separate thread. It updates unit by unit, in the order in which the next forward
// needs the units, and starts to copy the new values of each unit to the device as soon as they are computed.
//
// Elementwise updates give the same bits in any order and split (optimizer.hpp). On a CUDA device, two rules prevent
// races between copies and kernels. First, gradients are in host memory and complete (GradientReduction::finish), so
// the kernels that read the old values have ended. Second, copies of new values run on a side stream, and wait() makes
// the caller's current stream wait for the copy of the unit. Source: Ren et al., ZeRO-Offload (ATC 2021), section 4.
#pragma once
#include <vector>

#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/offload/work_thread.hpp"

namespace runner {

/// Used by the rank's thread. Every call throws the exception of a failed update.
class BackgroundUpdate {
 public:
  struct Unit {
    size_t first = 0, count = 0;      ///< range of the optimizer's parameters
    torch::Tensor values, on_device;  ///< after the update `values` are copied to `on_device`; undefined: no copy
  };
  /// `order` contains every unit once. The optimizer must outlive this object, and only this object may call its step
  /// functions.
  BackgroundUpdate(Optimizer& optimizer, torch::Device device, std::vector<Unit> units, std::vector<size_t> order,
                   std::string label, ShardEvents events);
  /// Waits for the unit that is being updated. Later units are not updated.
  ~BackgroundUpdate() = default;

  /// Starts to update all units, after waiting for the previous update. `gradients`: one for each parameter of the
  /// optimizer. Those of a unit are freed when its update has ended.
  void start(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor);
  /// Waits until unit `u` is updated. The host can then read its new values, and later work on the calling thread's
  /// current stream waits for the copy to the device.
  void wait(size_t u);
  /// Waits until all units are updated, all copies have ended, and the gradients are freed.
  void wait_all();

 private:
  void update_unit(size_t u, const Optimizer::Update& update, const std::vector<torch::Tensor>& gradients);

  Optimizer& optimizer_;
  std::vector<Unit> units_;
  std::vector<size_t> order_, position_;  ///< position_[u]: index of unit u in order_
  ShardEvents events_;
  Transfers to_device_;
  std::vector<StreamMark> copied_;  ///< end of each unit's copy; read only after waiting for the thread
  WorkThread thread_;               ///< last member, because it uses the others until it ends
};

}  // namespace runner
