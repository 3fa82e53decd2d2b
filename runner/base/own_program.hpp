// The file of the running program.
#pragma once
#include <filesystem>

namespace runner {

inline std::filesystem::path own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }
/// A file in the folder of the program.
inline std::filesystem::path beside_program(const char* name) { return own_program().parent_path() / name; }

}  // namespace runner
