// Shows long texts on a terminal with a pager.
#pragma once
#include <string>

namespace runner {

/// Prints `text` to stdout, through $PAGER (default `less`) if stdout is a terminal. An empty PAGER means no pager.
void show_page(const std::string& text);

}  // namespace runner
