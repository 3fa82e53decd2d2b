#include "runner/report/terminal.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

struct CodeRange {
  uint32_t first, last;
};

constexpr std::array<CodeRange, 6> zero_width{
    {{0x0300, 0x036f}, {0x1ab0, 0x1aff}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}}};
constexpr std::array<CodeRange, 10> double_width{{{0x1100, 0x115f},
                                                  {0x2e80, 0x303e},
                                                  {0x3041, 0xa4cf},
                                                  {0xac00, 0xd7a3},
                                                  {0xf900, 0xfaff},
                                                  {0xfe30, 0xfe6f},
                                                  {0xff00, 0xff60},
                                                  {0xffe0, 0xffe6},
                                                  {0x1f300, 0x1faff},
                                                  {0x20000, 0x3fffd}}};

template <size_t n>
bool within(uint32_t code, const std::array<CodeRange, n>& ranges) {
  for (const auto& range : ranges)
    if (code >= range.first && code <= range.last) return true;
  return false;
}

struct Character {
  size_t bytes;
  int width;
};

/// The first character of a non-empty text. A byte that does not start a character counts as one column.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size()) return {1, 1};
  uint32_t code = lead & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  return {bytes, within(code, zero_width) ? 0 : within(code, double_width) ? 2 : 1};
}

/// Shows `text` with a pager; false if there is none. The shell exits with 127 if the program does not exist.
bool paged(const std::string& text) {
  const char* named = std::getenv("PAGER");
  const std::string program = named ? named : "less";
  if (!::isatty(STDOUT_FILENO) || program.empty()) return false;
  ::setenv("LESS", "FRX", /*overwrite=*/0);  // less prints short texts and exits (the same options as git uses)
  ::signal(SIGPIPE, SIG_IGN);                // the user may quit the pager before the end
  std::FILE* pipe = ::popen((program + " 2>/dev/null").c_str(), "w");
  if (!pipe) return false;
  const std::string clean = terminal_text(text);
  std::fwrite(clean.data(), 1, clean.size(), pipe);
  constexpr int no_such_program = 127;
  return WEXITSTATUS(::pclose(pipe)) != no_such_program;
}

}  // namespace

int terminal_width(int fd) {
  winsize size{};
  if (!::isatty(fd)) return 0;
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool can_redraw(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) && term && std::string_view(term) != "dumb";
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string text = lower(value);
      return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
    }
  return false;
}

void ignore_closed_output() { ::signal(SIGPIPE, SIG_IGN); }

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    width += character.width;
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string cut_to_width(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view ellipsis = utf8_locale() ? "…" : "~";
  std::string out;
  int room = width - 1;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.width > room) break;
    room -= character.width;
    out += text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
  }
  return width > 0 ? out.append(ellipsis) : out;
}

std::string wrap_lines(const std::string& text, int width, size_t more) {
  auto lines = split(text, '\n');
  for (auto& line : lines) {
    std::string done, rest = line;
    size_t begin = std::min(rest.find_first_not_of(' '), rest.size());
    const std::string margin(begin + more, ' ');
    while (display_width(rest) > width) {
      size_t end = rest.find(' ', begin), next = end;  // the end of the last word that fits, or of the first one
      for (; next < rest.size() && display_width(rest.substr(0, next)) <= width; next = rest.find(' ', next + 1))
        end = next;
      const size_t behind = rest.find_first_not_of(' ', end);
      if (behind == std::string::npos) break;
      done += rest.substr(0, rest.find_last_not_of(' ', end) + 1) + '\n';
      rest = margin + rest.substr(behind);
      begin = margin.size();
    }
    line = done + rest;
  }
  return join(lines, "\n");
}

void print_line(const std::string& text) {
  std::puts(::isatty(STDOUT_FILENO) ? terminal_text(text).c_str() : text.c_str());
}

void show_page(const std::string& text) {
  if (!paged(text)) std::fputs(text.c_str(), stdout);
}

}  // namespace runner
