#include "tests/device/waits.hpp"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace runner::simulated {

namespace {

/// The functions of this program by their offsets. dladdr() does not know those in anonymous namespaces.
std::map<uintptr_t, std::string> read_functions() {
  std::unique_ptr<FILE, int (*)(FILE*)> lines(::popen("nm --demangle --defined-only /proc/$PPID/exe", "r"), ::pclose);
  TORCH_CHECK(lines, "cannot start nm");
  std::map<uintptr_t, std::string> functions;
  std::array<char, 4096> line;
  while (std::fgets(line.data(), line.size(), lines.get())) {
    uintptr_t offset = 0;
    char kind = 0;
    int length = 0;
    if (std::sscanf(line.data(), "%lx %c %n", &offset, &kind, &length) < 2) continue;
    if (std::string_view("tTwW").find(kind) == std::string_view::npos) continue;
    std::string name(line.data() + length);
    functions[offset] = name.substr(0, name.find_first_of("(\n", name.starts_with("runner::(") ? 9 : 0));
  }
  TORCH_CHECK(!functions.empty(), "this program has no table of symbols");
  return functions;
}

/// "runner::ShardStore::gather + 0x1f"; nullopt outside this program.
std::optional<std::string> place_of(const void* address) {
  static const std::map<uintptr_t, std::string> functions = read_functions();
  static const void* const own_base = [] {
    Dl_info info{};
    ::dladdr(reinterpret_cast<const void*>(&read_functions), &info);
    return info.dli_fbase;
  }();
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fbase != own_base) return std::nullopt;
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(own_base);
  auto function = functions.upper_bound(offset);
  if (function == functions.begin()) return std::nullopt;
  --function;
  char text[32];
  std::snprintf(text, sizeof text, " + 0x%lx", offset - function->first);
  return function->second + text;
}

/// Whether a frame of the stack is between the wait and the place in the program that asks for it: a function of this
/// device, of LibTorch, or of the classes for streams.
bool is_below(const std::string& place) {
  for (const char* prefix : {"runner::simulated::", "runner::StreamMark::", "runner::SideStream::",
                             "runner::Transfers::", "runner::testing::", "c10", "at::", "torch::", "std::"})
    if (place.starts_with(prefix)) return true;
  return false;
}

std::atomic<bool> watching = false;
std::mutex mutex;
std::string chosen;
std::vector<std::string> seen;

}  // namespace

void watch_waits(const std::string& left_out) {
  std::lock_guard lock(mutex);
  chosen = left_out;
  seen.clear();
  watching = true;
}

std::vector<std::string> watched_waits() {
  std::lock_guard lock(mutex);
  watching = false;
  chosen.clear();
  return std::exchange(seen, {});
}

bool wait_is_left_out() {
  if (!watching) return false;
  std::array<void*, 48> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  std::lock_guard lock(mutex);
  for (int i = 0; i < count; ++i) {
    const auto place = place_of(frames[static_cast<size_t>(i)]);
    if (!place || is_below(*place)) continue;
    if (std::ranges::find(seen, *place) == seen.end()) seen.push_back(*place);
    return *place == chosen;
  }
  return false;
}

}  // namespace runner::simulated
