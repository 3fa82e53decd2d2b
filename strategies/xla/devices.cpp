#include "strategies/xla/devices.hpp"

#include <fmt/format.h>

#include <chrono>

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

/// In the plug-in for CPUs 0.0.1, XNNPACK's matrix products are wrong if the memory of a factor was donated.
pjrt::CompileOptions compile_options(const pjrt::Client& client, int ranks) {
  pjrt::CompileOptions options{.replicas = ranks};
  if (client.platform() == "cpu") options.flags["xla_cpu_use_xnnpack"] = false;
  return options;
}

/// Counts the host memory of a running program, which LibTorch's allocator does not see.
class InHostMemory {
 public:
  InHostMemory(const pjrt::Client& client, const pjrt::Executable& program, int ranks) {
    if (client.platform() != "cpu") return;
    bytes_ = ranks * program.memory().bytes();
    process_account().add(bytes_);
  }
  ~InHostMemory() { process_account().add(-bytes_); }
  InHostMemory(const InHostMemory&) = delete;
  InHostMemory& operator=(const InHostMemory&) = delete;

 private:
  int64_t bytes_ = 0;
};

/// The first line of a program's name.
std::string title(const std::string& name) { return name.substr(0, name.find('\n')); }

/// Empty if the plug-in does not know it.
std::string memory_text(const pjrt::Executable& program) {
  try {
    const auto memory = program.memory();
    return fmt::format("; on each device it needs {} for its arguments and {} in addition",
                       format_bytes(memory.arguments), format_bytes(memory.temporary));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

Devices::Devices(const DeviceOptions& options, int ranks)
    : options_(options),
      ranks_(ranks),
      client_(std::make_shared<pjrt::Plugin>(options.plugin.empty() ? pjrt::cpu_plugin() : options.plugin),
              client_options(options, ranks)),
      store_(options.store),
      arguments_(static_cast<size_t>(ranks)),
      results_(static_cast<size_t>(ranks)) {
  if (!options.platform.empty() && client_.platform() != options.platform)
    throw environment_error("devices.accelerator = \"{}\", but strategy.plugin = \"{}\" has devices of the platform {}",
                            options.platform, options.plugin, client_.platform());
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
  options_.note(fmt::format("XLA {} the program of the {} in {:.1f} s{}", stored ? "loaded" : "compiled", title(name),
                            seconds, memory_text(program)));
}

const ProgramStore::Found& Devices::program(const std::string& name, const std::function<std::string()>& write) {
  const auto known = programs_.find(name);
  if (known != programs_.end()) return known->second;
  const auto module = write();
  const double begun = steady_seconds();
  auto found = store_.get(client_, module, compile_options(client_, ranks_), [&] {
    if (options_.note) options_.note(fmt::format("XLA compiles the program of the {}", title(name)));
  });
  if (options_.note && !found.problem.empty()) options_.note(found.problem);
  tell(name, found.program, found.stored, steady_seconds() - begun);
  return programs_.emplace(name, std::move(found)).first->second;
}

pjrt::ProgramMemory Devices::memory_of(const std::string& name, const std::function<std::string()>& write) {
  return program(name, write).program.memory();
}

void Devices::execute(const std::string& name, const std::function<std::string()>& write) {
  const auto& compiled = program(name, write).program;
  const InHostMemory counted(client_, compiled, ranks_);
  auto execution = compiled.execute(arguments_);
  execution.wait();
  results_ = std::move(execution.outputs);
}

std::vector<pjrt::Buffer> Devices::run(World& world, const std::string& name, const std::function<std::string()>& write,
                                       const std::vector<const pjrt::Buffer*>& arguments) {
  constexpr std::chrono::minutes patience{1};
  const auto rank = static_cast<size_t>(world.rank);
  if (world.size > 1) barrier(world.control);
  std::unique_lock lock(mutex_);
  arguments_[rank] = arguments;
  ++waiting_;
  changed_.notify_all();
  if (rank == 0) {
    failure_ = nullptr;
    try {
      // All have passed the barrier, unless its deadline ended for one of them.
      if (!changed_.wait_for(lock, patience, [&] { return waiting_ == ranks_; }))
        throw environment_error("only {} of {} ranks came to the program of the {}", waiting_, ranks_, title(name));
      execute(name, write);
    } catch (...) {
      failure_ = std::current_exception();
    }
    waiting_ = 0;
    ++ended_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&, before = ended_] { return ended_ != before; });
  }
  if (failure_) std::rethrow_exception(failure_);
  return std::move(results_[rank]);
}

}  // namespace runner::xla
