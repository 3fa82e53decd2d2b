// Long texts on a terminal, a screen at a time.
#pragma once
#include <string>

namespace runner {

/// Prints `text` on stdout: through $PAGER (default `less`) where stdout is a terminal, as it is otherwise. An empty
/// PAGER means none.
void show_page(const std::string& text);

}  // namespace runner
