#include "runner/commands/shared_options.hpp"

#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <iostream>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

void add_recipe_option(CLI::App& app, std::string& recipe) {
  app.add_option("recipe", recipe, "The recipe, TOML or Lua")->required();
}

void add_run_option(CLI::App& app, std::string& run) {
  auto* option =
      app.add_option("run", run, "A run: its id, part of it, its name, or last (the newest that is not archived)");
  run.empty() ? option->required() : option->capture_default_str();
}

void add_sweep_option(CLI::App& app, std::string& sweep) {
  app.add_option("sweep", sweep, "A sweep: its id, part of it, its name, or last")->capture_default_str();
}

CLI::Option* add_json_option(CLI::App& app, bool& json) {
  return app.add_flag("--json", json, "Print the result as JSON on stdout");
}

void print_json(const nlohmann::json& result) { std::puts(json_text(result).c_str()); }

void print_output(const std::string& output, bool json, nlohmann::json facts) {
  if (!json) return static_cast<void>(std::puts(output.c_str()));
  facts.update({{"schema", 1}, {"output", output}});
  print_json(facts);
}

void add_yes_option(CLI::App& app, bool& yes) { app.add_flag("-y,--yes", yes, "Do not ask"); }

void ask_to_delete(const std::string& verb, const std::string& what, bool yes) {
  if (yes) return;
  if (!::isatty(STDIN_FILENO))
    throw usage_error("{} deletes {} for good: add --yes to do that without a question", verb, what);
  std::fprintf(stderr, "Delete %s for good? [y/N] ", what.c_str());
  std::string answer;
  std::getline(std::cin, answer);
  if (const auto word = lower(trim(answer)); word != "y" && word != "yes") throw usage_error("nothing was deleted");
}

void print_mistakes(const std::vector<Diagnostic>& mistakes) {
  auto errors = nlohmann::json::array();
  for (const auto& diagnostic : mistakes) errors.push_back(to_json(diagnostic));
  print_json(nlohmann::json{{"schema", 1},
                            {"ok", false},
                            {"errors", errors},
                            {"notes", nlohmann::json::array()},
                            {"plan", nullptr},
                            {"pipeline", nullptr},
                            {"data", nullptr},
                            {"not_here", nullptr}});
}

void add_overrides(CLI::App& app, std::vector<std::string>& overrides) {
  app.add_option_function<std::string>(
         "--set", [&overrides](const std::string& text) { overrides.push_back(text); },
         "Override values of the recipe: --set train.max_steps=10 strategy=ddp")
      ->type_name("KEY=VALUE ...")
      ->trigger_on_parse()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option_function<std::string>(
         "--unset", [&overrides](const std::string& key) { overrides.push_back(unset_override(key)); },
         "Remove keys, or whole sections, that the recipe sets: --unset data.validation_fraction hooks")
      ->type_name("KEY ...")
      ->trigger_on_parse()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

bool is_further_value(const std::string& option, const std::string& word) {
  const auto key = word.substr(0, word.find('='));
  if (option == "--set")
    return key != word && !key.empty() && std::isalpha(static_cast<unsigned char>(key[0])) != 0 &&
           key.find_first_of("/ ") == std::string::npos;
  const bool file = word.ends_with(".toml") || word.ends_with(".lua");
  return option == "--unset" && !file && find_section(word.substr(0, word.find('.'))) != nullptr;
}

std::vector<std::string> unset_keys(const std::vector<std::string>& overrides) {
  const std::string prefix = unset_override("");
  std::vector<std::string> keys;
  for (const auto& text : overrides)
    if (text.starts_with(prefix)) keys.push_back(text.substr(prefix.size()));
  return keys;
}

CLI::Validator at_least(int64_t least) {
  auto problem = [least](const std::string& text) {
    int64_t value = 0;  // as CLI11 reads it, which refuses what is not a number
    const bool too_small = CLI::detail::lexical_cast(text, value) && value < least;
    return too_small ? fmt::format("must be at least {}, not {}", least, shortened_text(text)) : std::string();
  };
  return CLI::Validator(problem, least > 0 ? "POSITIVE" : "NONNEGATIVE");
}

CLI::Validator at_least_one() { return at_least(1); }

}  // namespace runner
