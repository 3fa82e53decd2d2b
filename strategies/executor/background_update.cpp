#include "strategies/executor/background_update.hpp"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runner/base/error.hpp"

namespace runner {

BackgroundUpdate::BackgroundUpdate(Optimizer& optimizer, torch::Device device, std::vector<Unit> units,
                                   std::vector<size_t> order, std::string label, ShardEvents events)
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

void BackgroundUpdate::start(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) {
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

void BackgroundUpdate::update_unit(size_t u, const Optimizer::Update& update,
                                   const std::vector<torch::Tensor>& gradients) {
  if (events_.update_begins) events_.update_begins(u);
  const Unit& unit = units_[u];
  optimizer_.step_part(update, unit.first, gradients);
  if (unit.on_device.defined()) copied_[u] = to_device_.copy_kept(unit.on_device, unit.values);
  if (events_.update_ended) events_.update_ended(u);
}

void BackgroundUpdate::wait(size_t u) {
  thread_.wait(position_.at(u));
  copied_[u].wait_on_device();
}

void BackgroundUpdate::wait_all() {
  thread_.wait_all();
  for (const auto& copied : copied_) copied.wait_on_host();
}

}  // namespace runner
