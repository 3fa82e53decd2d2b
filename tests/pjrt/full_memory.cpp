// A plug-in for tests: the one for CPUs, but when a program is started for the second time, the device has no memory left.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

namespace {

constexpr std::string_view text = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.";
char mark = 0;
std::atomic<int> starts = 0;

const PJRT_Api& real() {
  static const PJRT_Api* const api = [] {
    void* const library = dlopen(PJRT_CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  }();
  return *api;
}

/// The error of this plug-in. All others are those of the real one.
PJRT_Error* no_memory() { return reinterpret_cast<PJRT_Error*>(&mark); }

void message(PJRT_Error_Message_Args* arguments) {
  if (arguments->error != no_memory()) return real().PJRT_Error_Message(arguments);
  arguments->message = text.data();
  arguments->message_size = text.size();
}

void destroy(PJRT_Error_Destroy_Args* arguments) {
  if (arguments->error != no_memory()) real().PJRT_Error_Destroy(arguments);
}

PJRT_Error* code(PJRT_Error_GetCode_Args* arguments) {
  if (arguments->error != no_memory()) return real().PJRT_Error_GetCode(arguments);
  arguments->code = PJRT_Error_Code_RESOURCE_EXHAUSTED;
  return nullptr;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* arguments) {
  return ++starts < 2 ? real().PJRT_LoadedExecutable_Execute(arguments) : no_memory();
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api made{};
    const size_t bytes = std::min(sizeof made, real().struct_size);
    std::memcpy(&made, &real(), bytes);
    made.struct_size = bytes;
    made.PJRT_Error_Message = message;
    made.PJRT_Error_Destroy = destroy;
    made.PJRT_Error_GetCode = code;
    made.PJRT_LoadedExecutable_Execute = execute;
    return made;
  }();
  return &api;
}
