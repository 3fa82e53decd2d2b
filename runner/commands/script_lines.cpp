#include "runner/commands/script_lines.hpp"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/hook_file.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner {

namespace {

constexpr size_t lines_shown = 20;

std::string text_of(const std::string& script) {
  for (const auto* shipped : {&lua::shipped_hooks(), &lua::shipped_strategies()})
    if (const auto found = shipped->find(script); found != shipped->end()) return found->second;
  return read_file(script);
}

/// The lines that ran, of those that the states of the training noted as FILE:LINE.
std::set<int> lines_that_ran(const TinyTraining& training) {
  const std::string own = training.script().ends_with(".lua") ? training.script() : "/" + training.script() + ".lua";
  std::set<int> ran;
  if (!fs::exists(training.lines_file())) return ran;
  for (const auto& line : split(read_file(training.lines_file()), '\n'))
    if (const auto colon = line.rfind(':'); colon != std::string::npos && line.substr(0, colon).ends_with(own))
      ran.insert(std::atoi(line.c_str() + colon + 1));
  return ran;
}

/// Whether a line has more than the end of a block: the jump behind a block belongs to it.
bool has_words(const std::string& line) {
  std::string word;
  for (const char c : line + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else if (!word.empty() && word != "end" && word != "else") {
      return true;
    } else {
      word.clear();
    }
  }
  return false;
}

/// "8-9, 12"
std::string ranges_text(const std::set<int>& lines) {
  std::vector<std::string> parts;
  for (auto line = lines.begin(); line != lines.end();) {
    const int first = *line;
    int last = first;
    while (++line != lines.end() && *line == last + 1) last = *line;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return join(parts, ", ");
}

}  // namespace

ScriptLines describe_lines(const TinyTraining& training) {
  const std::string text = text_of(training.script());
  const auto code = lua::read_bytecode(lua::State().bytecode_of(text, training.script()));
  const auto ran = lines_that_ran(training);
  const auto source = split(text, '\n');
  std::set<int> never, undecided;
  for (const int line : code.runnable_lines())
    if (!ran.contains(line) && has_words(source.at(static_cast<size_t>(line) - 1))) never.insert(line);
  for (const int line : code.undecided_lines())
    if (ran.contains(line)) undecided.insert(line);
  if (!never.empty()) std::printf("never ran:\n");
  size_t shown = 0;
  for (const int line : never) {
    if (shown++ == lines_shown) {
      std::printf("  and %zu more\n", never.size() - lines_shown);
      break;
    }
    std::printf("  %d: %s\n", line, std::string(trim(source.at(static_cast<size_t>(line) - 1))).c_str());
  }
  std::fflush(stdout);
  std::string said = never.empty() ? "every line of it ran" : "lines that never ran: " + ranges_text(never);
  if (undecided.size() == 1)
    said += fmt::format(" (a condition in line {} decides whether a call there ran)", *undecided.begin());
  else if (!undecided.empty())
    said += fmt::format(" (conditions in lines {} decide whether calls there ran)", ranges_text(undecided));
  return {.everything = never.empty(), .text = said};
}

}  // namespace runner
