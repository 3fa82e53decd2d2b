#include "tests/device/copies.hpp"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "tests/device/call.hpp"

namespace runner::simulated {

void enter_copy(Lock&, int device, const View& target, const View& source, const char* what) {
  check_device(device, what);
  source.require_memory(what);
  target.require_memory(what);
  Stream& stream = current_stream(device);
  machine().schedule.enter(
      stream, {.kernel = [target, source] { run_as_kernel([&] { target.on_host().copy_(source.on_host()); }); }});
  source.note(stream, /*writes=*/false, what);
  target.note(stream, /*writes=*/true, what);
  machine().run_some(device);
}

namespace {

/// Reads pinned memory when it runs, if it moves bytes as they are. Anything else is staged: it reads the host's values
/// at the call.
at::Tensor copy_to_device(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  int device = target.device().index();
  bool as_it_is = source.is_pinned() && source.scalar_type() == target.scalar_type() && source.is_contiguous() &&
                  source.sizes() == target.sizes();
  View from = as_it_is ? View::of_pinned(source) : View::of(source), to = View::of(target);
  Lock lock = machine().lock();
  enter_copy(lock, device, to, from, "copy to device");
  if (!non_blocking) machine().host_waits(lock, machine().schedule.record(current_stream(device)));
  return target;
}

/// The host waits, unless the target is pinned and the caller does not want it to.
at::Tensor copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  int device = source.device().index();
  bool pinned = target.is_pinned();
  View from = View::of(source), to = View::of_pinned(target);
  Lock lock = machine().lock();
  enter_copy(lock, device, to, from, "copy to host");
  if (!non_blocking || !pinned) machine().host_waits(lock, machine().schedule.record(current_stream(device)));
  return target;
}

at::Tensor copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  int device = target.device().index();
  View from = View::of(source), to = View::of(target);
  Lock lock = machine().lock();
  if (source.device() != target.device()) machine().host_waits_for_device(lock, source.device().index());
  enter_copy(lock, device, to, from, "copy");
  if (source.device() != target.device()) machine().host_waits_for_device(lock, device);
  return target;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (source.is_cpu()) return copy_to_device(source, target, non_blocking);
  if (target.is_cpu()) return copy_to_host(source, target, non_blocking);
  return copy_on_device(source, target);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  at::Tensor(target).resize_(source.sizes());
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  auto host = at::empty({}, tensor.options().device(at::kCPU));
  copy_from(tensor, host, /*non_blocking=*/false);
  return host.item();
}

}  // namespace

}  // namespace runner::simulated

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", runner::simulated::copy_from);
  m.impl("_copy_from_and_resize", runner::simulated::copy_from_and_resize);
  m.impl("_local_scalar_dense", runner::simulated::local_scalar);
}
