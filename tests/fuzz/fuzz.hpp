// Readers of files that strangers write, and the driver that gives them changed files.
#pragma once
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace runner::fuzz {

/// Reads bytes as one kind of file. Errors of the type Error are right; anything else that leaves a reader is a mistake in it.
struct Target {
  std::string_view name;
  /// `file` has the bytes. Its folder is empty otherwise, and is emptied afterwards.
  void (*read)(const std::filesystem::path& file, std::string_view bytes);
};
const std::vector<Target>& targets();

/// Changes one of `corpus`: numbers and lengths, words of the file and of its kind, parts that are repeated, nested, moved, cut out, or
/// come from another file.
std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random);

}  // namespace runner::fuzz
