// Properties of the terminal: its width, its encoding, and the width of a text on it. Long texts go through a pager.
#pragma once
#include <string>
#include <string_view>

namespace runner {

/// Columns of the terminal at file descriptor `fd`; 0 if it is not a terminal, 80 if the width is unknown.
int terminal_width(int fd);

/// Whether `fd` is a terminal that can redraw a line (TERM is set and not "dumb").
bool can_redraw(int fd);

/// Whether the locale (LC_ALL, LC_CTYPE, LANG) is UTF-8.
bool utf8_locale();

/// From now on, output to a pipe without a reader is lost (`runner run ... 2>&1 | head`). By default SIGPIPE would end
/// the process, and with it a training that nobody watches any more.
void ignore_closed_output();

/// The number of columns of UTF-8 text: two for East Asian wide characters, none for combining marks.
int display_width(std::string_view text);

/// `text` if it fits `width` columns, otherwise its beginning with an ellipsis.
std::string cut_to_width(std::string_view text, int width);

/// Breaks the lines of `text` that are wider than `width` at spaces. What follows a break is indented by `more` spaces more than its line.
std::string wrap_lines(const std::string& text, int width, size_t more = 0);

/// Prints a line on stdout: as it is, or as terminal_text() if stdout is a terminal.
void print_line(const std::string& text);

/// Prints `text` to stdout, through $PAGER (default `less`) if stdout is a terminal. An empty PAGER means no pager.
void show_page(const std::string& text);

}  // namespace runner
