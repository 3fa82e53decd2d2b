#include "runner/commands/front.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>

#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/outside_fault.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/completion.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/inference/line_output.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

/// The formatter of --help: no line is wider than the terminal, or than 100 characters where there is none.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap_lines(CLI::Formatter::make_option_desc(option), width_ - static_cast<int>(get_column_width()));
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrap_lines(CLI::Formatter::make_footer(app), width_);
  }

 private:
  const int columns_ = terminal_width(STDOUT_FILENO), width_ = columns_ > 0 ? std::max(60, columns_) : 100;
};

constexpr const char* short_help =
    R"(runner trains what a TOML recipe describes, with any strategy, on any number of devices.

  runner init                write a recipe
  runner check RECIPE.toml   find its mistakes without starting anything
  runner run RECIPE.toml     train it
  runner resume RUN          continue a run from its newest checkpoint
  runner ls                  list runs; runner show RUN has the details of one
  runner recommend RECIPE    which strategy fits best here, or on other devices

All verbs: runner --help. One verb: runner help VERB. Keys of recipes: runner help recipe.
)";

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::vector<CLI::App*> shown_verbs(CLI::App& app) {
  return app.get_subcommands([](CLI::App* verb) { return !verb->get_group().empty(); });
}

CLI::App* find_verb(CLI::App& app, const std::string& name) {
  for (auto* verb : shown_verbs(app))
    if (verb->get_name() == name) return verb;
  return nullptr;
}

/// The full command of a verb, e.g. "runner sweep status".
std::string full_command(const CLI::App* app) {
  return app->get_parent() ? full_command(app->get_parent()) + " " + app->get_name() : app->get_name();
}

/// The verb for a word of another tool or for a typing error; empty if there is none.
std::optional<std::string> meant_verb(CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (auto* verb : shown_verbs(app)) names.push_back(verb->get_name());
  if (!app.get_parent())
    for (const auto& command : commands())
      for (const char* other : command.other_names)
        if (word == other) return command.name;
  return nearest(word, names);
}

/// Throws Error(usage) for the first word that should be a verb and is not.
void check_verbs(CLI::App& root, const std::vector<std::string>& words) {
  CLI::App* app = &root;
  for (const auto& word : words) {
    if (is_option(word)) continue;
    if (shown_verbs(*app).empty()) return;
    if (CLI::App* verb = find_verb(*app, word)) {
      app = verb;
      continue;
    }
    auto near = meant_verb(*app, word);
    throw usage_error("{} has no verb `{}`{}; `{} --help` lists all", full_command(app), word,
                      near ? fmt::format(": did you mean `{}`?", *near) : "", full_command(app));
  }
}

/// Changes `help VERB ...` to `VERB ... --help`. `help recipe` and its topics stay unchanged.
void rewrite_help(CLI::App& app, std::vector<std::string>& words) {
  if (words.size() < 2 || words[0] != "help" || !find_verb(app, words[1])) return;
  words.erase(words.begin());
  words.push_back("--help");
}

/// Changes `--set a=1 b=2` to `--set a=1 --set b=2`, and --unset likewise. Otherwise CLI11 would also treat a following recipe file as a
/// value.
std::vector<std::string> repeat_overrides(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  std::string option;  // the one whose values may follow
  bool is_value = false;
  for (const auto& word : words) {
    const auto name = word.substr(0, word.find('='));
    if (is_value) {
      is_value = false;
    } else if (name == "--set" || name == "--unset") {
      option = name;
      is_value = word == name;
    } else if (is_further_value(option, word)) {
      out.push_back(option);
    } else {
      option.clear();
    }
    out.push_back(word);
  }
  return out;
}

/// Whether the verb takes several words that may be terms of a filter or tags.
bool takes_terms(const CLI::App& app) {
  static const std::vector<std::string> names = {"filter", "runs"};
  return std::ranges::any_of(app.get_options(), [](const auto* option) {
    const bool named = std::ranges::find(names, option->get_single_name()) != names.end();
    return named && option->get_positional() && option->get_items_expected_max() > 1;
  });
}

/// Changes `-TERM` of a filter, and -TAG after `tag`, to `!TERM`, which CLI11 does not read as options.
void protect_terms(CLI::App& root, std::vector<std::string>& words) {
  const CLI::App* verb = words.empty() ? nullptr : find_verb(root, words[0]);
  if (!verb || !takes_terms(*verb)) return;
  const bool tags = verb->get_name() == "tag";
  for (auto& word : words) {
    const bool option = word.starts_with("--") || !is_option(word) || word == "-h";
    const bool term = word.size() > 2 && word[2] != '=' && word.find_first_of(":<>=") != std::string::npos;
    if (!option && (term || tags)) word[0] = '!';
  }
}

/// The innermost subcommand that was parsed.
CLI::App* deepest(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::string about_extra(CLI::App* app, const std::string& word) {
  auto text = fmt::format("{} does not take `{}`", full_command(app), shortened_text(word));
  std::vector<std::string> names;
  for (const auto* option : app->get_options())
    if (!option->get_group().empty())
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  const bool takes_set = std::find(names.begin(), names.end(), "--set") != names.end();
  if (takes_set && is_further_value("--set", word)) return text + fmt::format(": did you mean `--set {}`?", word);
  if (!is_option(word)) return text;
  const std::string name = word.substr(0, word.find('='));
  if (name == "--set" && full_command(app).find(" sweep ") != std::string::npos)
    return text + ": the values that all trials share are in the section [sweep.set] of the sweep file";
  auto near = nearest(name, names);
  if (!near && takes_terms(*app) && word.size() > 2 && !word.starts_with("--"))
    return text + ": a filter excludes a word by `not WORD`";
  return near ? text + fmt::format(": did you mean `{}`?", *near) : text;
}

/// CLI11's "verb: chek not in {check}" as "verb cannot be `chek`: did you mean `check`?"; empty for other messages.
std::string about_choice(const std::string& message) {
  const std::string after_name = ": ", middle = " not in {", end = "}";
  const auto name_end = message.find(after_name), word_end = message.find(middle);
  if (name_end == std::string::npos || word_end == std::string::npos || !message.ends_with(end)) return "";
  const auto word_begin = name_end + after_name.size(), list_begin = word_end + middle.size();
  const std::string word = message.substr(word_begin, word_end - word_begin);
  const auto choices = split(message.substr(list_begin, message.size() - end.size() - list_begin), ',');
  const auto near = nearest(word, choices);
  return fmt::format("{} cannot be `{}`: {}", message.substr(0, name_end), word,
                     near ? fmt::format("did you mean `{}`?", *near) : "it is " + join_or(choices));
}

/// The word for an argument in a usage: "RUN ... | FILTER", "RECIPE".
std::string placeholder(const CLI::Option* argument) {
  auto text = argument->get_type_name();
  if (!text.empty() && !text.starts_with("TEXT") && !text.starts_with("INT")) return text;
  text = argument->get_single_name();
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

/// CLI11's "runs is required" as "no run is given: `runner rm RUN ... | FILTER`"; empty for other messages.
std::string about_missing(const CLI::App* app, const std::string& message) {
  const auto* missing = app->get_option_no_throw(message.substr(0, message.find(" is required")));
  if (!missing || !missing->get_positional()) return "";
  std::string usage = full_command(app);
  for (const auto* option : app->get_options())
    if (option->get_positional())
      usage += option->get_required() ? " " + placeholder(option) : " [" + placeholder(option) + "]";
  std::string noun = lower(placeholder(missing));
  noun.erase(0, noun.find_first_not_of('['));
  return fmt::format("no {} is given: `{}`", noun.substr(0, noun.find_first_of(" .]")), usage);
}

/// CLI11's "Could not convert: --devices = many" and "--set: 1 required KEY=VALUE ... missing" as "--devices must be a number, not `many`"
/// and "--set needs KEY=VALUE"; other messages unchanged.
std::string plainer(const std::string& message) {
  if (auto choice = about_choice(message); !choice.empty()) return choice;
  const std::string unread = "Could not convert: ";
  if (const auto equals = message.find(" = "); message.starts_with(unread) && equals != std::string::npos)
    return fmt::format("{} must be a number, not `{}`", message.substr(unread.size(), equals - unread.size()),
                       shortened_text(message.substr(equals + 3)));
  const std::string middle = ": 1 required ", end = " missing";
  const auto at = message.find(middle);
  if (at == std::string::npos || !message.ends_with(end)) return message;
  auto what = message.substr(at + middle.size(), message.size() - end.size() - at - middle.size());
  if (what.ends_with(" ...")) what.resize(what.size() - 4);
  const bool type = what.starts_with("TEXT") || what.starts_with("INT") || what.starts_with("UINT");
  return message.substr(0, at) + " needs " + (type ? "a value" : what);
}

ExitCode refuse(CLI::App& root, const CLI::ParseError& error) {
  CLI::App* app = deepest(&root);
  auto extras = app->remaining();
  std::string word = extras.empty() ? "" : extras.front();
  if (word.starts_with('!')) word[0] = '-';  // as the user wrote it, see protect_terms()
  const auto missing = about_missing(app, error.what());
  const auto what = extras.empty() ? (missing.empty() ? plainer(error.what()) : missing)
                                   : about_extra(app, word) + (missing.empty() ? "" : "; " + missing);
  log::error("{}; `{} --help` lists its arguments", what, full_command(app));
  return ExitCode::usage;
}

ExitCode run_verb(CLI::App& app, const Action& chosen, std::vector<std::string> words) {
  check_verbs(app, words);
  words = repeat_overrides(words);
  protect_terms(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 expects the words in reverse order
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return ExitCode::done;
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
  return chosen();
}

/// Lets this process and its children open as many files as the system allows them to: sockets to a thousand ranks are
/// more than the usual 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Records, JSON and the page are UTF-8, and have the words of the command and the folders in which it works.
void check_texts(const std::vector<std::string>& words) {
  for (const auto& word : words)
    if (first_invalid_utf8(word))
      throw usage_error(
          "an argument on the command line is not UTF-8: \"{}\"; rename the file, or write the text in UTF-8",
          escape_invalid_utf8(word));
  std::error_code gone;
  const char* home = std::getenv("RUNNER_HOME");
  for (const auto& path : {std::filesystem::current_path(gone).string(), std::string(home ? home : "")})
    if (first_invalid_utf8(path))
      throw usage_error("the name of the folder {} is not UTF-8: rename it, or work in another one (RUNNER_HOME, cd)",
                        escape_invalid_utf8(path));
}

/// Whether the path of a fault is in the command line.
bool is_of_user(const std::exception& error, const std::vector<std::string>& words) {
  const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  return file && std::ranges::find(words, file->path1().string()) != words.end();
}

/// The exit code after stdout is flushed: an error if printed text is lost, because stdout is a file on a full disk. A reader that has
/// gone away (EPIPE) is no error.
ExitCode after_output(ExitCode code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed || errno == EPIPE || code != ExitCode::done) return code;
  log::error("cannot write to standard output{}", errno != 0 ? fmt::format(": {}", std::strerror(errno)) : "");
  return ExitCode::environment;
}

}  // namespace

int run_command_line(std::vector<std::string> words, const std::string& version) {
  raise_descriptor_limit();
  const std::vector<std::string> given = words;
  CLI::App app("Declarative experiment runner for distributed training: one TOML recipe, any strategy, any machine.",
               "runner");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.formatter(std::make_shared<WrappedHelp>());
  Action chosen;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary)->group(command.heading);
    Action action = command.setup(*sub);
    sub->callback([&chosen, action] { chosen = action; });
  }
  try {
    if (words.empty() || words == std::vector<std::string>{"help"}) {
      std::fputs(short_help, stdout);
      return static_cast<int>(after_output(ExitCode::done));
    }
    if (words[0] == completion_verb) {
      std::fputs(completions(app, {words.begin() + 1, words.end()}).c_str(), stdout);
      return static_cast<int>(ExitCode::done);
    }
    check_texts(words);
    rewrite_help(app, words);
    return static_cast<int>(after_output(run_verb(app, chosen, std::move(words))));
  } catch (const RecipeError& error) {
    std::fprintf(stderr, "%s\n", terminal_text(error.what()).c_str());  // it has "error:" after file and line
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    if (error.what() != std::string_view(closed_output)) log::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (const auto fault = outside_fault(error)) {
      log::error("{}", fault->what());
      return static_cast<int>(is_of_user(error, given) ? ExitCode::usage : fault->code());
    }
    log::error("{} (this is a bug in runner)", error.what());
    return static_cast<int>(ExitCode::run_failed);
  }
}

}  // namespace runner
