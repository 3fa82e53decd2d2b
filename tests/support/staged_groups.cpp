#include "tests/support/staged_groups.hpp"

#include "strategies/collective/backends.hpp"

namespace runner::testing {

namespace {

ProcessGroup staged(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroup& group, c10::DeviceType device) {
  if (!group) return group;
  auto backend = host_staged(group->getBackend(at::kCPU));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  wrapped->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return wrapped;
}

}  // namespace

void stage_groups(World& world, c10::DeviceType device) {
  world.group = staged(world.store, world.group, device);
  world.make_subgroup = [make = world.make_subgroup, store = world.store, device](const std::vector<int>& ranks,
                                                                                  const std::string& name) {
    return staged(store, make(ranks, name), device);
  };
}

}  // namespace runner::testing
