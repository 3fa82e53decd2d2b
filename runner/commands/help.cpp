// `runner help`.
#include <cstdio>
#include <memory>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/report/terminal.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/catalog.hpp"

namespace runner {

namespace {

/// The help of `strategy.OPTION`, an option of some strategies; empty if there is no such option.
std::string option_help(const std::string& topic) {
  const std::string section = "strategy.";
  if (!topic.starts_with(section)) return "";
  std::string text;
  for (const auto& entry : catalog())
    for (const auto& option : entry.options)
      if (entry.unavailable.empty() && section + option.name == topic)
        text += fmt::format("  of {}: {} (runner strategies {})\n", entry.name, option.help, entry.name);
  return text.empty() ? "" : topic + ", an option of a strategy\n" + text;
}

std::string help_text(const std::string& subject, const std::string& topic) {
  if (auto text = option_help(subject == "recipe" ? topic : subject); !text.empty()) return text;
  if (subject == "recipe") {
    const std::string strategy =
        find_strategy(topic) ? fmt::format("`{0}` is a strategy: `runner strategies {0}` describes it\n", topic) : "";
    try {
      return strategy + recipe_help(topic, find_argument);
    } catch (const Error&) {
      if (strategy.empty()) throw;
      return strategy;
    }
  }
  if (!topic.empty())
    throw usage_error("`runner help` takes one topic, or `recipe` and one: `runner help recipe {}`", topic);
  if (find_section(subject) || find_key(subject) || key_meant_by(subject, find_argument))
    return recipe_help(subject, find_argument);
  if (find_strategy(subject))
    throw usage_error("`{}` is a strategy: `runner strategies {}` describes it", subject, subject);
  std::vector<std::string> names{"recipe"};
  for (const auto& command : commands()) names.push_back(command.name);
  for (const auto& section : sections()) names.push_back(section.name);
  for (const auto& key : key_table()) names.push_back(key.dotted());
  auto near = nearest(subject, names);
  throw usage_error("there is no help on `{}`{}; `runner --help` lists the verbs, `runner help recipe` the keys",
                    subject, near ? fmt::format(": did you mean `{}`?", *near) : "");
}

}  // namespace

Action setup_help(CLI::App& app) {
  auto subject = std::make_shared<std::string>("recipe"), topic = std::make_shared<std::string>();
  auto schema = std::make_shared<bool>(false);
  app.add_option("subject", *subject, "A verb, or recipe, or a section or key of recipes (train, train.max_steps)");
  app.add_option("topic", *topic, "After recipe: a section or a key");
  app.add_flag("--schema", *schema, "The JSON Schema of recipes, as in schemas/recipe.schema.json");
  return [=] {  // front.cpp handles `help VERB`
    if (*schema)
      std::fputs(recipe_schema().c_str(), stdout);
    else
      show_page(help_text(*subject, *topic));
    return ExitCode::done;
  };
}

}  // namespace runner
