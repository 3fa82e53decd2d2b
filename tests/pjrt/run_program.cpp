#include "tests/pjrt/run_program.hpp"

#include <span>

#include "runner/base/error.hpp"

namespace runner::testing {

using namespace pjrt;

namespace {

template <typename T>
Buffer upload_as(const Client& client, const Type& type, const Numbers& values, int device) {
  std::vector<T> converted(values.begin(), values.end());
  return client.upload(std::as_bytes(std::span(converted)), type.element, type.shape, device);
}

template <typename T>
Numbers download_as(const Buffer& buffer, int64_t count) {
  const auto values = std::make_unique<T[]>(static_cast<size_t>(count));
  const std::span<T> all(values.get(), static_cast<size_t>(count));
  buffer.read(std::as_writable_bytes(all));
  return {all.begin(), all.end()};
}

Buffer upload(const Client& client, const Type& type, const Numbers& values, int device) {
  switch (type.element) {
    case ElementType::boolean: {
      const auto flags = std::make_unique<bool[]>(values.size());
      for (size_t i = 0; i < values.size(); ++i) flags[i] = values[i] != 0;
      return client.upload(std::as_bytes(std::span(flags.get(), values.size())), type.element, type.shape, device);
    }
    case ElementType::int32:
      return upload_as<int32_t>(client, type, values, device);
    case ElementType::int64:
      return upload_as<int64_t>(client, type, values, device);
    case ElementType::float32:
      return upload_as<float>(client, type, values, device);
    case ElementType::float64:
      return upload_as<double>(client, type, values, device);
    default:
      RUNNER_CHECK(false, "16-bit values are made by conversion");
  }
}

Numbers download(const Buffer& buffer) {
  const int64_t count = Type{buffer.type(), buffer.shape()}.numel();
  switch (buffer.type()) {
    case ElementType::boolean:
      return download_as<bool>(buffer, count);
    case ElementType::int32:
      return download_as<int32_t>(buffer, count);
    case ElementType::int64:
      return download_as<int64_t>(buffer, count);
    case ElementType::float32:
      return download_as<float>(buffer, count);
    case ElementType::float64:
      return download_as<double>(buffer, count);
    default:
      RUNNER_CHECK(false, "16-bit values are read after conversion");
  }
}

}  // namespace

std::shared_ptr<const Plugin> loaded_cpu_plugin() {
  static const auto plugin = std::make_shared<const Plugin>(PJRT_CPU_PLUGIN);
  return plugin;
}

CompileOptions on_replicas(int replicas) { return {.replicas = replicas, .flags = {{"xla_cpu_use_xnnpack", false}}}; }

std::vector<std::vector<Numbers>> run_program(const std::string& module, const std::vector<Type>& types,
                                              const std::vector<std::vector<Numbers>>& arguments) {
  const auto replicas = static_cast<int>(arguments.size());
  const Client client(loaded_cpu_plugin(), {.cpu_devices = replicas});
  const auto program = client.compile(module, on_replicas(replicas));
  std::vector<std::vector<Buffer>> held(arguments.size());
  std::vector<std::vector<const Buffer*>> given(arguments.size());
  for (size_t r = 0; r < arguments.size(); ++r) {
    for (size_t i = 0; i < types.size(); ++i)
      held[r].push_back(upload(client, types[i], arguments[r][i], static_cast<int>(r)));
    for (const auto& buffer : held[r]) given[r].push_back(&buffer);
  }
  auto execution = program.execute(given);
  execution.wait();
  std::vector<std::vector<Numbers>> results;
  for (const auto& outputs : execution.outputs) {
    results.emplace_back();
    for (const auto& buffer : outputs) results.back().push_back(download(buffer));
  }
  return results;
}

}  // namespace runner::testing
