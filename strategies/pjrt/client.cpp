#include "strategies/pjrt/client.hpp"

#include <fmt/format.h>

#include "runner/base/error.hpp"
#include "strategies/pjrt/calls.hpp"
#include "strategies/pjrt/module_error.hpp"

namespace runner::pjrt {

namespace {

PJRT_NamedValue named(const char* name, int64_t value) {
  PJRT_ARGUMENTS(PJRT_NamedValue, option);
  option.name = name;
  option.name_size = std::char_traits<char>::length(name);
  option.type = PJRT_NamedValue_kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

PJRT_Buffer_Type buffer_type(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return PJRT_Buffer_Type_PRED;
    case ElementType::int32:
      return PJRT_Buffer_Type_S32;
    case ElementType::int64:
      return PJRT_Buffer_Type_S64;
    case ElementType::float16:
      return PJRT_Buffer_Type_F16;
    case ElementType::bfloat16:
      return PJRT_Buffer_Type_BF16;
    case ElementType::float32:
      return PJRT_Buffer_Type_F32;
    case ElementType::float64:
      return PJRT_Buffer_Type_F64;
  }
  return PJRT_Buffer_Type_INVALID;
}

}  // namespace

Client::Client(std::shared_ptr<const Plugin> plugin, const ClientOptions& options) : plugin_(std::move(plugin)) {
  std::vector<PJRT_NamedValue> values;
  if (options.cpu_devices) values.push_back(named("cpu_device_count", *options.cpu_devices));
  PJRT_ARGUMENTS(PJRT_Client_Create_Args, create);
  create.create_options = values.data();
  create.num_options = values.size();
  if (const auto problem = plugin_->message_of(plugin_->api().PJRT_Client_Create(&create)); !problem.empty())
    throw environment_error("the PJRT plug-in {} finds no device: {}", plugin_->path(), problem);
  handle_ = create.client;
  PJRT_ARGUMENTS(PJRT_Client_AddressableDevices_Args, asked);
  asked.client = handle_;
  if (const auto problem = plugin_->message_of(plugin_->api().PJRT_Client_AddressableDevices(&asked));
      !problem.empty()) {
    close();
    throw environment_error("cannot list the devices of the PJRT plug-in {}: {}", plugin_->path(), problem);
  }
  devices_.assign(asked.addressable_devices, asked.addressable_devices + asked.num_addressable_devices);
  if (!devices_.empty()) return;
  close();
  throw environment_error("the PJRT plug-in {} finds no device", plugin_->path());
}

Client::~Client() { close(); }

void Client::close() {
  PJRT_ARGUMENTS(PJRT_Client_Destroy_Args, destroy);
  destroy.client = handle_;
  (void)plugin_->message_of(plugin_->api().PJRT_Client_Destroy(&destroy));
}

std::string Client::platform() const {
  PJRT_ARGUMENTS(PJRT_Client_PlatformName_Args, asked);
  asked.client = handle_;
  plugin_->check(plugin_->api().PJRT_Client_PlatformName(&asked), "cannot read the name of the platform");
  return {asked.platform_name, asked.platform_name_size};
}

std::string Client::platform_version() const {
  PJRT_ARGUMENTS(PJRT_Client_PlatformVersion_Args, asked);
  asked.client = handle_;
  plugin_->check(plugin_->api().PJRT_Client_PlatformVersion(&asked), "cannot read the version of the platform");
  return {asked.platform_version, asked.platform_version_size};
}

void Client::check_replicas(const CompileOptions& options) const {
  RUNNER_CHECK(options.replicas >= 1 && options.replicas <= devices(), "{} replicas on {} devices", options.replicas,
               devices());
}

Executable Client::compile(const std::string& module, const CompileOptions& options) const {
  check_replicas(options);
  const std::string format = "mlir", bytes = to_bytes(options);
  std::string code = module;  // the interface takes it without const
  PJRT_ARGUMENTS(PJRT_Program, program);
  program.code = code.data();
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  PJRT_ARGUMENTS(PJRT_Client_Compile_Args, compile);
  compile.client = handle_;
  compile.program = &program;
  compile.compile_options = bytes.data();
  compile.compile_options_size = bytes.size();
  if (const auto problem = plugin_->message_of(plugin_->api().PJRT_Client_Compile(&compile)); !problem.empty())
    throw Error(ExitCode::run_failed, module_error(module, problem));
  return {*plugin_, compile.executable, options.replicas};
}

Executable Client::load(const std::string& serialized, const CompileOptions& options) const {
  check_replicas(options);
  const std::string bytes = to_bytes(options);
  PJRT_ARGUMENTS(PJRT_Executable_DeserializeAndLoad_Args, load);
  load.client = handle_;
  load.serialized_executable = serialized.data();
  load.serialized_executable_size = serialized.size();
  load.overridden_serialized_compile_options = bytes.data();
  load.overridden_serialized_compile_options_size = bytes.size();
  plugin_->check(plugin_->api().PJRT_Executable_DeserializeAndLoad(&load), "a stored program cannot be read");
  return {*plugin_, load.loaded_executable, options.replicas};
}

Buffer Client::upload(std::span<const std::byte> data, ElementType type, const std::vector<int64_t>& shape, int device,
                      HostMemory memory) const {
  int64_t bytes = bytes_of(type);
  for (const int64_t size : shape) bytes *= size;
  RUNNER_CHECK(static_cast<int64_t>(data.size()) == bytes, "{} bytes for an array of {}", data.size(), bytes);
  PJRT_ARGUMENTS(PJRT_Client_BufferFromHostBuffer_Args, copy);
  copy.client = handle_;
  const std::byte nothing{};
  copy.data = data.empty() ? &nothing : data.data();
  copy.type = buffer_type(type);
  copy.dims = shape.data();
  copy.num_dims = shape.size();
  copy.host_buffer_semantics = memory == HostMemory::copied ? PJRT_HostBufferSemantics_kImmutableOnlyDuringCall
                                                            : PJRT_HostBufferSemantics_kImmutableZeroCopy;
  copy.device = devices_.at(static_cast<size_t>(device));
  plugin_->check(plugin_->api().PJRT_Client_BufferFromHostBuffer(&copy), "cannot make an array on the device");
  Buffer made(*plugin_, copy.buffer);
  if (memory == HostMemory::copied) {
    plugin_->wait_for(copy.done_with_host_buffer, "cannot make an array on the device");
  } else {  // it happens when the array is freed
    PJRT_ARGUMENTS(PJRT_Event_Destroy_Args, destroy);
    destroy.event = copy.done_with_host_buffer;
    (void)plugin_->message_of(plugin_->api().PJRT_Event_Destroy(&destroy));
  }
  return made;
}

}  // namespace runner::pjrt
