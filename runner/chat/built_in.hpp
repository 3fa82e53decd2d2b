// The texts of the built-in templates.
#pragma once
#include <span>
#include <string_view>

namespace runner::chat {

struct BuiltInText {
  std::string_view name, text;
};
std::span<const BuiltInText> built_in_texts();

}  // namespace runner::chat
