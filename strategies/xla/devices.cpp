#include "strategies/xla/devices.hpp"

#include <fmt/format.h>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/collective/counting_allocator.hpp"

namespace runner::xla {

namespace {

/// The plug-in for CPUs makes as many devices as there are ranks.
pjrt::ClientOptions client_options(const DeviceOptions& options, int ranks) {
  return options.plugin.empty() ? pjrt::ClientOptions{.cpu_devices = ranks} : pjrt::ClientOptions{};
}

/// Its matrix products by XNNPACK are wrong if the memory of a factor was donated (plug-in 0.0.1).
pjrt::CompileOptions compile_options(const pjrt::Client& client, int ranks) {
  pjrt::CompileOptions options{.replicas = ranks};
  if (client.platform() == "cpu") options.flags["xla_cpu_use_xnnpack"] = false;
  return options;
}

/// What a program uses while it runs, if that is memory of the host: the plug-in allocates it without LibTorch's allocator, which counts.
class InHostMemory {
 public:
  InHostMemory(const pjrt::Client& client, const pjrt::ProgramMemory& memory, int ranks) {
    if (client.platform() != "cpu") return;
    bytes_ = ranks * (memory.arguments + memory.outputs - memory.aliased + memory.temporary);
    process_account().add(bytes_);
  }
  ~InHostMemory() { process_account().add(-bytes_); }
  InHostMemory(const InHostMemory&) = delete;
  InHostMemory& operator=(const InHostMemory&) = delete;

 private:
  int64_t bytes_ = 0;
};

}  // namespace

std::string cpu_plugin() { return RUNNER_PJRT_CPU_PLUGIN; }

Devices::Devices(const DeviceOptions& options, int ranks)
    : options_(options),
      ranks_(ranks),
      client_(std::make_shared<pjrt::Plugin>(options.plugin.empty() ? cpu_plugin() : options.plugin),
              client_options(options, ranks)),
      store_(options.store),
      arguments_(static_cast<size_t>(ranks)),
      results_(static_cast<size_t>(ranks)) {
  if (client_.devices() < ranks)
    throw environment_error("the recipe has {}, but the PJRT plug-in {} finds {}", counted(ranks, "device"),
                            options.plugin, counted(client_.devices(), "device"));
}

std::shared_ptr<Devices> Devices::open(World& world, const DeviceOptions& options) {
  if (world.size == 1) return std::shared_ptr<Devices>(new Devices(options, 1));
  // The ranks have one address space, so the first one sends them the address.
  std::shared_ptr<Devices> made;
  if (world.rank == 0) made.reset(new Devices(options, world.size));
  std::vector<at::Tensor> address{torch::full({1}, reinterpret_cast<int64_t>(&made), torch::kInt64)};
  world.control->broadcast(address, {.rootRank = 0})->wait();
  const auto opened = *reinterpret_cast<std::shared_ptr<Devices>*>(address[0].item<int64_t>());
  barrier(world.control);  // until all have copied it
  return opened;
}

void Devices::tell(const std::string& name, const pjrt::Executable& program, bool stored, double seconds) const {
  constexpr double long_time = 2;
  if (!options_.note || (!options_.reports && (stored || seconds < long_time))) return;
  const auto memory = program.memory();
  options_.note(fmt::format(
      "XLA {} the program of the {} in {:.1f} s; on each device it needs {} for its arguments and {} in addition",
      stored ? "loaded" : "compiled", name, seconds, format_bytes(memory.arguments), format_bytes(memory.temporary)));
}

const pjrt::Executable& Devices::program(const std::string& name, const std::function<std::string()>& write) {
  const auto found = programs_.find(name);
  if (found != programs_.end()) return found->second;
  const auto module = write();
  const double begun = steady_seconds();
  auto [program, stored, problem] = store_.get(client_, module, compile_options(client_, ranks_));
  if (options_.note && !problem.empty()) options_.note(problem);
  tell(name.substr(0, name.find('\n')), program, stored, steady_seconds() - begun);
  const auto memory = program.memory();
  if (memory.arguments + memory.temporary > memory_.arguments + memory_.temporary) memory_ = memory;
  return programs_.emplace(name, std::move(program)).first->second;
}

std::vector<pjrt::Buffer> Devices::run(World& world, const std::string& name, const std::function<std::string()>& write,
                                       const std::vector<const pjrt::Buffer*>& arguments) {
  const auto rank = static_cast<size_t>(world.rank);
  arguments_[rank] = arguments;
  if (world.size > 1) barrier(world.control);
  if (rank == 0) {
    const auto& compiled = program(name, write);
    const InHostMemory counted(client_, compiled.memory(), ranks_);
    auto execution = compiled.execute(arguments_);
    execution.wait();
    results_ = std::move(execution.outputs);
  }
  if (world.size > 1) barrier(world.control);
  return std::move(results_[rank]);
}

}  // namespace runner::xla
