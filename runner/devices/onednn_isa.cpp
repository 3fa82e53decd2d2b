// Which instruction set oneDNN, and with it LibTorch, computes 16-bit products with on this CPU.
// Source: oneDNN 3.10.2, src/cpu/x64/cpu_isa_traits.{hpp,cpp}.
#include <algorithm>
#include <array>
#include <string_view>

#include "runner/base/text.hpp"
#include "runner/devices/probes.hpp"

namespace runner {

namespace {

/// A level has what its parent has, and the CPU flags that it names.
struct Level {
  std::string_view name, parent;
  std::vector<std::string> flags;
};

/// The levels of instruction sets. Of two that a CPU has, oneDNN takes the later.
const std::vector<Level>& levels() {
  static const std::vector<Level> all = {
      {"avx2", "", {"avx2"}},
      {"avx2_vnni", "avx2", {"avx_vnni"}},
      {"avx2_vnni_2", "avx2_vnni", {"avx_vnni_int8", "avx_ne_convert"}},
      {"avx512_core", "avx2", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}},
      {"avx512_core_vnni", "avx512_core", {"avx512_vnni"}},
      {"avx512_core_bf16", "avx512_core_vnni", {"avx512_bf16"}},
      {"avx512_core_fp16", "avx512_core_bf16", {"avx512_fp16", "avx_vnni"}},
      {"avx512_core_amx", "avx512_core_fp16", {"amx_tile", "amx_int8", "amx_bf16"}},
      {"avx512_core_amx_fp16", "avx512_core_amx", {"amx_fp16"}},
  };
  return all;
}

const Level* find_level(std::string_view name) {
  auto level = std::find_if(levels().begin(), levels().end(), [&](const Level& one) { return one.name == name; });
  return level == levels().end() ? nullptr : &*level;
}

bool has(const std::vector<std::string>& flags, const Level& level) {
  auto present = [&](const std::string& flag) { return std::find(flags.begin(), flags.end(), flag) != flags.end(); };
  const Level* parent = find_level(level.parent);
  return (!parent || has(flags, *parent)) && std::all_of(level.flags.begin(), level.flags.end(), present);
}

/// Whether a CPU of level `most` has `level`.
bool within(const Level& level, const Level* most) {
  for (; most; most = find_level(most->parent))
    if (most == &level) return true;
  return false;
}

/// AVX10 names the same instructions anew.
const Level* limit_named(const std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 2> others{
      {{"avx10_1_512", "avx512_core_fp16"}, {"avx10_1_512_amx", "avx512_core_amx"}}};
  std::string name = lower(text);
  for (auto [other, same] : others)
    if (name == other) return find_level(same);
  return find_level(name);
}

}  // namespace

std::string onednn_isa(const std::vector<std::string>& flags, const std::string& limit) {
  const Level* most = limit_named(limit);
  std::string best;
  if (lower(limit) == "sse41" || lower(limit) == "avx") return best;
  for (const Level& level : levels())
    if (has(flags, level) && (!most || within(level, most))) best = level.name;
  return best;
}

}  // namespace runner
