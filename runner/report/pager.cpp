#include "runner/report/pager.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "runner/base/quoting.hpp"

namespace runner {

namespace {

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

void show_page(const std::string& text) {
  if (!paged(text)) std::fputs(text.c_str(), stdout);
}

}  // namespace runner
