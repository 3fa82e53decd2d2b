// Text of strangers inside other languages: one function for each language, so that a name stays a name there. SQL gets texts only
// as bound parameters, and the page only as text nodes.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// The text as one word of a POSIX shell's command.
std::string shell_word(const std::string& text);
/// The words of a command, quoted, with spaces between them: it can be pasted.
std::string shell_words(const std::vector<std::string>& words);

/// A string of gnuplot on one line. It has single quotes, because gnuplot runs what stands in back-quotes between double quotes.
std::string gnuplot_string(std::string_view text);

/// A cell of a comma-separated table (RFC 4180). A text that spreadsheets would compute (it begins with =, +, - or @, and is no number)
/// gets an apostrophe before it.
std::string csv_cell(const std::string& text);

/// The text as terminals may get it: control characters (U+0000 to U+001F, U+007F to U+009F), those that turn the direction of writing,
/// and bytes that are not UTF-8 are written as "\x1B" and "\u202E". Line ends and tabs stay.
std::string terminal_text(std::string_view text);
/// terminal_text() on one line: line ends and tabs are spaces.
std::string one_line(std::string_view text);

}  // namespace runner
