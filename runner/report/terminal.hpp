// The terminal: how wide it is, whether it shows Unicode, and how wide a text is on it.
#pragma once
#include <string>
#include <string_view>

namespace runner {

/// Columns of the terminal behind file descriptor `fd`; 0 when it is none.
int terminal_width(int fd);

/// Whether `fd` is a terminal that can redraw a line (TERM is set and not "dumb").
bool can_redraw(int fd);

/// Whether the locale (LC_ALL, LC_CTYPE, LANG) is UTF-8.
bool utf8_locale();

/// Columns that UTF-8 text takes: East Asian wide characters two, combining marks none.
int display_width(std::string_view text);

/// The beginning of `text` that fits `width` columns, with an ellipsis where something was cut.
std::string cut_to_width(std::string_view text, int width);

/// `text` on one line: control characters, which could move the cursor, become spaces.
std::string one_line(std::string_view text);

}  // namespace runner
