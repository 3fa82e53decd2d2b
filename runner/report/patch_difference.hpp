// The difference between two texts, and between two patches of git, as a unified diff.
#pragma once
#include <string>

namespace runner {

/// `diff -u A B` with these names in its head; "" if the texts are equal. Uses the program `diff`; without it, says so.
std::string unified_diff(const std::string& a, const std::string& b, const std::string& name_a,
                         const std::string& name_b);

/// The differences between two patches of one commit, file by file: the changes of a file that only one of them changes, and for a file
/// that both change differently the unified diff of their changes. Files that both change alike are left out.
std::string patch_difference(const std::string& a, const std::string& b, const std::string& name_a,
                             const std::string& name_b);

}  // namespace runner
