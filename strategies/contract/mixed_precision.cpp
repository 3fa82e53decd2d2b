#include "strategies/contract/mixed_precision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace runner {

namespace {

constexpr std::pair<const char*, DType> mixed_dtypes[] = {
    {"float32", DType::float32}, {"fp32", DType::float32},    {"32", DType::float32},   {"bfloat16", DType::bfloat16},
    {"bf16", DType::bfloat16},   {"float16", DType::float16}, {"fp16", DType::float16}, {"16", DType::float16}};

/// Converts "torch.float16" to "float16".
std::string without_torch(const std::string& dtype) {
  const std::string prefix = "torch.";
  return dtype.starts_with(prefix) ? dtype.substr(prefix.size()) : dtype;
}

}  // namespace

std::optional<DType> mixed_dtype(const nlohmann::json& mixed, const char* part) {
  const auto value = mixed.is_object() ? mixed.value(part, nlohmann::json()) : mixed;
  for (const auto& [name, dtype] : mixed_dtypes)
    if (value.is_string() && without_torch(value.get<std::string>()) == name) return dtype;
  return std::nullopt;
}

std::optional<std::string> refuse_mixed_precision(const nlohmann::json& mixed) {
  if (mixed.is_null()) return std::nullopt;
  std::vector<std::string> names, parts{"param_dtype", "reduce_dtype", "buffer_dtype"};
  for (const auto& [name, dtype] : mixed_dtypes) names.push_back(name);
  auto wrong = [&](const std::string& where, const nlohmann::json& value) -> std::optional<std::string> {
    bool known = value.is_string() &&
                 std::find(names.begin(), names.end(), without_torch(value.get<std::string>())) != names.end();
    if (known) return std::nullopt;
    return fmt::format("{} cannot be {}{}; a dtype is \"float32\", \"bfloat16\" or \"float16\"", where, value.dump(),
                       suggestion(value, names));
  };
  if (!mixed.is_object()) return wrong("mixed_precision", mixed);
  for (const auto& [part, value] : mixed.items()) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      return fmt::format("mixed_precision has no {}{}; it has param_dtype, reduce_dtype and buffer_dtype",
                         in_quotes(part), suggestion(part, parts));
    if (auto why = wrong("mixed_precision." + part, value)) return why;
  }
  return std::nullopt;
}

std::optional<std::string> note_on_mixed_precision(const nlohmann::json& mixed) {
  if (!mixed.is_object() || !mixed.contains("buffer_dtype")) return std::nullopt;
  return "`mixed_precision.buffer_dtype`: no effect: a model's buffers are tables in the dtype in which blocks compute";
}

}  // namespace runner
