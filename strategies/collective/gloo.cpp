#include "strategies/collective/gloo.hpp"

#include <gloo/common/error.h>

#include <cstdlib>

#define USE_C10D_GLOO  // else LibTorch's header is empty
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "strategies/collective/completed_work.hpp"
#include "strategies/collective/tree.hpp"

namespace runner {

namespace {

/// Gloo sums around a ring, whatever the size.
class GlooWithTree final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    if (tensors.size() != 1 || !suits_tree(tensors[0], options.reduceOp.op_))
      return ProcessGroupGloo::allreduce(tensors, options);
    tree_all_reduce(*this, tensors[0], options.reduceOp.op_);
    return completed(tensors);
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const std::string& address, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  using Gloo = c10d::ProcessGroupGloo;
  options->devices.push_back(
      interface && *interface ? Gloo::createDeviceForInterface(interface)
                              : Gloo::createDeviceForHostname(address.empty() ? "127.0.0.1" : address));
  options->threads = 2;
  return c10::make_intrusive<GlooWithTree>(store, rank, size, options);
}

bool is_gloo_error(const std::exception& error) { return dynamic_cast<const ::gloo::Exception*>(&error) != nullptr; }

}  // namespace runner
