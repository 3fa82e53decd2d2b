// Secret values that a bundle leaves out, taken from the recipe that a run has here.
#pragma once
#include <string>

namespace runner {

/// The recipe, in which "***" stands for secrets, with the values of `here`, an earlier recipe of the same run. A line is replaced if the
/// one of the same key in `here` differs from it only where it has "***". Both are as print_recipe() writes them: a key on each line.
std::string with_local_secrets(const std::string& recipe, const std::string& here);

}  // namespace runner
