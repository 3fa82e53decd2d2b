// The optimizer's update in host memory beside a device, on a thread of its own: unit by unit, in the order in which
// the next forward needs the units, and each one's new values on their way to the device as soon as they are there.
//
// Elementwise updates give the same bits in whatever parts they are made (optimizer.hpp). On a CUDA device three things
// keep copies and kernels apart. The thread first waits for all that the rank's stream held when the update began:
// whatever read the values or the device's copies of them has read them. Its copies run on a stream of their own, and
// whoever waits for a unit makes its current stream wait for that unit's copy. And gradients are host memory that the
// host has waited for (reduction.hpp). Source: Ren et al., ZeRO-Offload (ATC 2021), section 4.
#pragma once
#include <memory>
#include <vector>

#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/offload/work_thread.hpp"
#include "strategies/sharded/strategy.hpp"

namespace runner {

/// Used by the rank's thread (and by autograd's while that waits for it). Every call throws what the update has thrown.
class BackgroundUpdate {
 public:
  struct Unit {
    size_t first = 0, count = 0;      ///< parameters of the optimizer
    torch::Tensor values, on_device;  ///< where to copy what after the update, of one dtype; undefined: nothing
  };
  /// `order`: every unit once. The optimizer outlives this, and nobody else calls its step meanwhile.
  BackgroundUpdate(Optimizer& optimizer, torch::Device device, std::vector<Unit> units, std::vector<size_t> order,
                   std::string label, ShardEvents events);
  /// Waits for the unit at work; the others keep their old values.
  ~BackgroundUpdate() = default;

  /// Begins to update all units. `gradients`: one per parameter of the optimizer; each unit's are dropped when its
  /// update has ended. Waits for the update before.
  void start(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor);
  /// Unit `u` has its new values when this returns, for the host, and for what the calling thread enters into its
  /// current stream from now on.
  void wait(size_t u);
  /// All units have them, copies are over, and the gradients are dropped.
  void wait_all();

 private:
  void update_unit(size_t u, const Optimizer::Update& update, const std::vector<torch::Tensor>& gradients);

  Optimizer& optimizer_;
  torch::Device device_;
  std::vector<Unit> units_;
  std::vector<size_t> order_, position_;  ///< position_[u]: of unit u in order_
  ShardEvents events_;
  Transfers to_device_;
  std::vector<StreamMark> copied_;  ///< of each unit; read after the thread has been waited for
  WorkThread thread_;               ///< last: it ends before what it uses
};

}  // namespace runner
