// Keeps secret values out of the text of a recipe.
#pragma once
#include <string>

#include "runner/base/secrets.hpp"

namespace runner {

/// `text`, a recipe in TOML, with *** in place of the values that Secrets::take_from() finds, however they are written. The values are
/// added to `secrets`. Of a text that is no TOML, such as a recipe in Lua, what Secrets::take_from(text) finds is replaced.
std::string recipe_without_secrets(const std::string& text, Secrets& secrets);

}  // namespace runner
