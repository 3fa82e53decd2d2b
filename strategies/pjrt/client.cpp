#include "strategies/pjrt/client.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/pjrt/calls.hpp"
#include "strategies/pjrt/module_error.hpp"

namespace runner::pjrt {

namespace {

/// A message in protocol buffers' wire format. Each member function writes a field.
class Message {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void text(int field, const std::string& value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  /// Integers in one field, packed.
  void integers(int field, const std::vector<int64_t>& values) {
    Message list;
    for (const int64_t value : values) list.varint(static_cast<uint64_t>(value));
    text(field, list.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// OptionOverrideProto.
Message flag_value(bool value) {
  Message message;
  message.integer(2, value ? 1 : 0);
  return message;
}

/// DeviceAssignmentProto: replica i runs on device i of the client.
Message device_assignment(const CompileOptions& options) {
  auto numbers = options.devices;
  while (std::ssize(numbers) < options.replicas) numbers.push_back(std::ssize(numbers));
  numbers.resize(static_cast<size_t>(options.replicas));
  Message devices, assignment;
  devices.integers(1, numbers);
  assignment.integer(1, options.replicas);
  assignment.integer(2, 1);
  assignment.message(3, devices);
  return assignment;
}

}  // namespace

std::string to_bytes(const CompileOptions& options) {
  Message build;         // ExecutableBuildOptionsProto
  build.integer(1, -1);  // the device is decided by the assignment
  build.integer(4, options.replicas);
  build.integer(5, 1);  // partitions
  build.message(9, device_assignment(options));
  Message all;
  all.message(3, build);
  for (const auto& [name, value] : options.flags) {
    Message entry;
    entry.text(1, name);
    entry.message(2, flag_value(value));
    all.message(7, entry);
  }
  return all.bytes();
}

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

std::string Client::identity() const {
  PJRT_ARGUMENTS(PJRT_Client_PlatformVersion_Args, version);
  version.client = handle_;
  plugin_->check(plugin_->api().PJRT_Client_PlatformVersion(&version), "cannot read the version of the platform");
  PJRT_ARGUMENTS(PJRT_Device_GetDescription_Args, described);
  described.device = devices_.front();
  plugin_->check(plugin_->api().PJRT_Device_GetDescription(&described), "cannot describe a device");
  PJRT_ARGUMENTS(PJRT_DeviceDescription_Kind_Args, kind);
  kind.device_description = described.device_description;
  plugin_->check(plugin_->api().PJRT_DeviceDescription_Kind(&kind), "cannot read the kind of a device");
  return fmt::format("{} {} {} {}", plugin_->version(), plugin_->content(),
                     std::string_view(version.platform_version, version.platform_version_size),
                     std::string_view(kind.device_kind, kind.device_kind_size));
}

CompileOptions Client::completed(CompileOptions options) const {
  for (auto* device : devices_) {
    PJRT_ARGUMENTS(PJRT_Device_GetDescription_Args, described);
    described.device = device;
    plugin_->check(plugin_->api().PJRT_Device_GetDescription(&described), "cannot describe a device");
    PJRT_ARGUMENTS(PJRT_DeviceDescription_Id_Args, number);
    number.device_description = described.device_description;
    plugin_->check(plugin_->api().PJRT_DeviceDescription_Id(&number), "cannot read the number of a device");
    options.devices.push_back(number.id);
  }
  return options;
}

void Client::check_replicas(const CompileOptions& options) const {
  RUNNER_CHECK(options.replicas >= 1 && options.replicas <= devices(), "{} replicas on {} devices", options.replicas,
               devices());
}

Executable Client::compile(const std::string& module, const CompileOptions& options) const {
  check_replicas(options);
  const std::string format = "mlir", bytes = to_bytes(completed(options));
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
  PJRT_Error* const error = plugin_->api().PJRT_Client_Compile(&compile);
  if (plugin_->out_of_memory(error)) plugin_->check(error, "a program needs too much memory");
  if (const auto problem = plugin_->message_of(error); !problem.empty())
    throw Error(ExitCode::run_failed, module_error(module, problem));
  return {*plugin_, compile.executable, options.replicas};
}

Executable Client::load(const std::string& serialized, const CompileOptions& options) const {
  check_replicas(options);
  const std::string bytes = to_bytes(completed(options));
  PJRT_ARGUMENTS(PJRT_Executable_DeserializeAndLoad_Args, load);
  load.client = handle_;
  load.serialized_executable = serialized.data();
  load.serialized_executable_size = serialized.size();
  load.overridden_serialized_compile_options = bytes.data();
  load.overridden_serialized_compile_options_size = bytes.size();
  plugin_->check(plugin_->api().PJRT_Executable_DeserializeAndLoad(&load), "a stored program cannot be read");
  return {*plugin_, load.loaded_executable, options.replicas};
}

Buffer Client::upload(std::span<const std::byte> data, ElementType type, const Shape& shape, int device,
                      HostMemory memory) const {
  const int64_t bytes = Type{type, shape}.bytes();
  RUNNER_CHECK(static_cast<int64_t>(data.size()) == bytes, "{} bytes for an array of {}", data.size(), bytes);
  PJRT_ARGUMENTS(PJRT_Client_BufferFromHostBuffer_Args, copy);
  copy.client = handle_;
  const std::byte nothing{};
  copy.data = data.empty() ? &nothing : data.data();
  copy.type = std::ranges::find(element_types, type, &ElementTypeNames::ours)->theirs;
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
