#include "strategies/pjrt/plugin.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/xxh3.hpp"
#include "strategies/pjrt/calls.hpp"

namespace runner::pjrt {

namespace {

/// The end of the last function that is needed; older plug-ins have a shorter table.
constexpr size_t needed_bytes = PJRT_STRUCT_SIZE(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats);

/// Throws if the file ends before its sections do: a process that loads such a file dies of SIGBUS. Files that are not
/// found here, and those that are no ELF files, are left to dlopen(), which searches folders and explains.
void require_complete(const std::string& path) {
  Elf64_Ehdr header{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return;
  if (!std::equal(ELFMAG, ELFMAG + SELFMAG, header.e_ident)) return;
  const uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  const auto size = std::filesystem::file_size(path);
  if (size < end) throw environment_error("the PJRT plug-in {} is incomplete: it has {} of {} bytes", path, size, end);
}

const PJRT_Api* table_of(const std::string& path) {
  require_complete(path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw environment_error("cannot load the PJRT plug-in {}: {}", path, dlerror());
  auto* const get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  const PJRT_Api* api = get ? get() : nullptr;
  if (!api) throw environment_error("{} is no PJRT plug-in: it has no function GetPjrtApi", path);
  return api;
}

}  // namespace

Plugin::Plugin(const std::string& path) : path_(path), api_(table_of(path)) {
  const auto& found = api_->pjrt_api_version;
  if (found.major_version != PJRT_API_MAJOR)
    throw environment_error("the PJRT plug-in {} has version {} of the interface, and this program needs {}.x", path,
                            version(), PJRT_API_MAJOR);
  if (api_->struct_size < needed_bytes)
    throw environment_error(
        "the PJRT plug-in {} has version {} of the interface, which is too old: it does not report the memory of "
        "programs",
        path, version());
  require_functions();
  PJRT_ARGUMENTS(PJRT_Plugin_Initialize_Args, arguments);
  check(api_->PJRT_Plugin_Initialize(&arguments), "the PJRT plug-in cannot be initialised");
}

void Plugin::require_functions() const {
  const auto require = [&](bool there, const char* name) {
    if (!there) throw environment_error("the PJRT plug-in {} has no function {}", path_, name);
  };
#define RUNNER_REQUIRE(name) require(api_->name != nullptr, #name)
  RUNNER_REQUIRE(PJRT_Error_Message);
  RUNNER_REQUIRE(PJRT_Error_Destroy);
  RUNNER_REQUIRE(PJRT_Error_GetCode);
  RUNNER_REQUIRE(PJRT_Plugin_Initialize);
  RUNNER_REQUIRE(PJRT_Event_Await);
  RUNNER_REQUIRE(PJRT_Event_Destroy);
  RUNNER_REQUIRE(PJRT_Client_Create);
  RUNNER_REQUIRE(PJRT_Client_Destroy);
  RUNNER_REQUIRE(PJRT_Client_PlatformName);
  RUNNER_REQUIRE(PJRT_Client_PlatformVersion);
  RUNNER_REQUIRE(PJRT_Client_AddressableDevices);
  RUNNER_REQUIRE(PJRT_Device_GetDescription);
  RUNNER_REQUIRE(PJRT_DeviceDescription_Id);
  RUNNER_REQUIRE(PJRT_DeviceDescription_Kind);
  RUNNER_REQUIRE(PJRT_Client_Compile);
  RUNNER_REQUIRE(PJRT_Client_BufferFromHostBuffer);
  RUNNER_REQUIRE(PJRT_Executable_Destroy);
  RUNNER_REQUIRE(PJRT_Executable_NumOutputs);
  RUNNER_REQUIRE(PJRT_Executable_GetCompiledMemoryStats);
  RUNNER_REQUIRE(PJRT_Executable_Serialize);
  RUNNER_REQUIRE(PJRT_Executable_DeserializeAndLoad);
  RUNNER_REQUIRE(PJRT_LoadedExecutable_Destroy);
  RUNNER_REQUIRE(PJRT_LoadedExecutable_GetExecutable);
  RUNNER_REQUIRE(PJRT_LoadedExecutable_Execute);
  RUNNER_REQUIRE(PJRT_Buffer_Destroy);
  RUNNER_REQUIRE(PJRT_Buffer_Dimensions);
  RUNNER_REQUIRE(PJRT_Buffer_ElementType);
  RUNNER_REQUIRE(PJRT_Buffer_IsDeleted);
  RUNNER_REQUIRE(PJRT_Buffer_ToHostBuffer);
#undef RUNNER_REQUIRE
}

std::string Plugin::content() const {
  if (!content_.empty()) return content_;
  Dl_info library{};  // the path may be a name that the system looked up
  const bool found = dladdr(api_, &library) != 0 && library.dli_fname;
  return content_ = xxh3_hex(MappedFile(found ? library.dli_fname : path_).bytes());
}

std::string Plugin::version() const {
  return fmt::format("{}.{}", api_->pjrt_api_version.major_version, api_->pjrt_api_version.minor_version);
}

bool Plugin::out_of_memory(PJRT_Error* error) const {
  if (!error) return false;
  PJRT_ARGUMENTS(PJRT_Error_GetCode_Args, asked);
  asked.error = error;
  PJRT_Error* const failed = api_->PJRT_Error_GetCode(&asked);
  (void)message_of(failed);
  return !failed && asked.code == PJRT_Error_Code_RESOURCE_EXHAUSTED;
}

std::string Plugin::message_of(PJRT_Error* error) const {
  if (!error) return "";
  PJRT_ARGUMENTS(PJRT_Error_Message_Args, message);
  message.error = error;
  api_->PJRT_Error_Message(&message);
  std::string text(message.message, message.message_size);
  PJRT_ARGUMENTS(PJRT_Error_Destroy_Args, destroy);
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
  return text.empty() ? "XLA gives no reason" : text;
}

void Plugin::check(PJRT_Error* error, const char* what) const {
  if (!error) return;
  const bool of_memory = out_of_memory(error);
  const auto message = fmt::format("{}: {}", what, message_of(error));
  if (of_memory) throw OutOfMemory(message);
  throw Error(ExitCode::run_failed, message);
}

void Plugin::wait_for(PJRT_Event* event, const char* what) const {
  PJRT_ARGUMENTS(PJRT_Event_Await_Args, await);
  await.event = event;
  PJRT_Error* const error = api_->PJRT_Event_Await(&await);
  PJRT_ARGUMENTS(PJRT_Event_Destroy_Args, destroy);
  destroy.event = event;
  api_->PJRT_Event_Destroy(&destroy);
  check(error, what);
}

std::string cpu_plugin() {
  const auto packed = beside_program("libpjrt_cpu.so");
  for (const auto& place : {packed, std::filesystem::path(RUNNER_PJRT_CPU_PLUGIN)})
    if (std::error_code missing; std::filesystem::exists(place, missing)) return place.string();
  throw environment_error(
      "XLA's plug-in for CPUs is not here: run scripts/setup --xla, or name another plug-in with strategy.plugin");
}

}  // namespace runner::pjrt
