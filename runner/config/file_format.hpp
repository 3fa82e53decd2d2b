// Recognises files of another format than the one that a reader needs: TOML, JSON and Lua.
#pragma once
#include <string>

namespace runner {

enum class FileFormat { toml, json, lua };

/// What the file seems to be instead of `wanted`, and which command reads it. Empty if it may be what is wanted. The
/// first character of `text` counts more than the suffix of `file`.
std::string wrong_format(FileFormat wanted, const std::string& file, const std::string& text);

}  // namespace runner
