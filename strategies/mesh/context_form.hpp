// How the ranks of a context axis, which divide the tokens of each row, compute attention. Torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

/// How queries reach the keys of other ranks.
enum class ContextForm : uint8_t {
  gather,  ///< each rank gathers the keys and values of all tokens (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2)
  ring,  ///< keys and values travel from rank to rank, and partial results are merged (Liu et al. 2023, arXiv:2310.01889)
  ulysses,  ///< during attention each rank has all tokens, of some of the heads (Jacobs et al. 2023, arXiv:2309.14509)
};
/// "gather", "ring", "ulysses", in the order of ContextForm.
const std::vector<std::string>& context_form_names();
const std::string& name_of(ContextForm form);
/// The inverse of name_of(). Throws std::logic_error for another name.
ContextForm context_form(const std::string& name);

}  // namespace runner
