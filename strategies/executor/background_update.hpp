// Updates offloaded parameters on a separate thread. It updates unit by unit, in the order in which the next forward
// needs the units, and starts to copy the new values of each unit to the device as soon as they are computed.
//
// Elementwise updates give the same bits in any order and split (optimizer.hpp). On a CUDA device, two rules prevent
// races between copies and kernels. First, gradients are in host memory and complete (GradientReduction::finish), so
// the kernels that read the old values have ended. Second, copies of new values run on a side stream, and wait() makes
// the caller's current stream wait for the copy of the unit. Source: Ren et al., ZeRO-Offload (ATC 2021), section 4.
#pragma once
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>
#include <utility>
#include <vector>

#include "runner/base/error.hpp"
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
                   std::string label, ShardEvents events)
      : optimizer_(optimizer),
        units_(std::move(units)),
        order_(std::move(order)),
        position_(units_.size(), units_.size()),
        events_(std::move(events)),
        to_device_(device),
        copied_(units_.size()),
        thread_(std::move(label), [device, threads = at::get_num_threads()] {
          // The current device of a new thread is device 0. Without this, every rank would create a context on device 0.
          if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
          // The number of OpenMP threads is a setting of each thread.
          at::set_num_threads(threads);
        }) {
    for (size_t i = 0; i < order_.size(); ++i) position_.at(order_[i]) = i;
    for (size_t u = 0; u < units_.size(); ++u) RUNNER_CHECK(position_[u] < order_.size(), "no order for unit {}", u);
  }

  /// Waits for the unit that is being updated. Later units are not updated.
  ~BackgroundUpdate() = default;

  /// Starts to update all units, after waiting for the previous update. `gradients`: one for each parameter of the
  /// optimizer. Those of a unit are freed when its update has ended.
  void start(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) {
    thread_.wait_all();
    auto update = optimizer_.begin_step(lr_factor, gradient_divisor);
    std::vector<WorkThread::Piece> pieces;
    for (size_t u : order_) {
      auto from = gradients.begin() + static_cast<std::ptrdiff_t>(units_[u].first);
      std::vector<torch::Tensor> own(from, from + static_cast<std::ptrdiff_t>(units_[u].count));
      pieces.push_back([this, u, update, own = std::move(own)] { update_unit(u, update, own); });
    }
    gradients.clear();
    thread_.start(std::move(pieces));
  }

  /// Waits until unit `u` is updated. The host can then read its new values, and later work on the calling thread's
  /// current stream waits for the copy to the device.
  void wait(size_t u) {
    thread_.wait(position_.at(u));
    copied_[u].wait_on_device();
  }

  /// Waits until all units are updated, all copies have ended, and the gradients are freed. Not inlined, because tests/device checks for
  /// each place in the code that its wait is necessary.
  [[gnu::noinline]] void wait_all() {
    thread_.wait_all();
    for (const auto& copied : copied_) copied.wait_on_host();
  }

 private:
  void update_unit(size_t u, const Optimizer::Update& update, const std::vector<torch::Tensor>& gradients) {
    if (events_.update_begins) events_.update_begins(u);
    const Unit& unit = units_[u];
    optimizer_.step_part(update, unit.first, gradients);
    if (unit.on_device.defined()) copied_[u] = to_device_.copy_kept(unit.on_device, unit.values);
    if (events_.update_ended) events_.update_ended(u);
  }

  Optimizer& optimizer_;
  std::vector<Unit> units_;
  std::vector<size_t> order_, position_;  ///< position_[u]: index of unit u in order_
  ShardEvents events_;
  Transfers to_device_;
  std::vector<StreamMark> copied_;  ///< end of each unit's copy; read only after waiting for the thread
  WorkThread thread_;               ///< last member, because it uses the others until it ends
};

}  // namespace runner
