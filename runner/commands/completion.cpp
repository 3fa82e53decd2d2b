// `runner completion` and the candidates for its scripts.
#include "runner/commands/completion.hpp"

#include <cstdio>
#include <memory>
#include <ranges>
#include <set>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/key_table.hpp"
#include "runner/ledger/filter.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/ledger/trash.hpp"
#include "strategies/catalog.hpp"

namespace runner {

namespace {

struct Candidate {
  std::string text, about;
};
using Candidates = std::vector<Candidate>;

/// Choices of an option as CLI11 describes them: "TEXT:{bash,zsh,fish}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  auto type = option.get_type_name();
  auto open = type.find('{'), close = type.find('}', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return split(type.substr(open + 1, close - open - 1), ',');
}

/// "model.dim=" for each key, or the values of the key if `current` already contains "KEY=".
Candidates overrides(const std::string& current) {
  Candidates list;
  auto equals = current.find('=');
  const auto name = current.substr(0, equals);
  const Section* section = find_section(name);  // `strategy=fsdp` sets strategy.name
  const Key* key = section ? find_key(section->name, section->main_key) : find_key(name);
  if (equals == std::string::npos) {
    for (const auto& each : sections())
      if (!each.main_key.empty()) list.push_back({each.name + "=", each.help});
    for (const auto& each : key_table()) list.push_back({each.dotted() + "=", each.help});
    return list;
  }
  auto values = key ? key->choices : std::vector<std::string>();
  if (key && key->type == Option::Type::boolean) values = {"true", "false"};
  if (key && key->dotted() == "strategy.name") {
    values = strategy_names();
    values.push_back("auto");
  }
  for (const auto& value : values) list.push_back({current.substr(0, equals + 1) + value, ""});
  return list;
}

Candidates keys() {
  Candidates list;
  for (const auto& section : sections()) list.push_back({section.name, section.help});
  for (const auto& key : key_table()) list.push_back({key.dotted(), key.help});
  return list;
}

Candidates fields() {
  Candidates list;
  for (const auto& field : run_fields()) list.push_back({field.name, field.help});
  return list;
}

/// The rows of a table of the ledger, newest first. Empty if the ledger cannot be read.
Candidates newest_first(const char* noun, const auto& rows) try {
  Candidates list{{"last", fmt::format("the newest {}", noun)}};
  const auto found = rows();
  for (const auto& row : found | std::views::reverse) list.push_back({row.id, row.name + ", " + row.status});
  return list;
} catch (const Error&) {
  return {};
}

Candidates runs() {
  return newest_first("run",
                      [] { return Ledger(ledger_home(), Ledger::Mode::read).runs(parse_filter("archived:any")); });
}
Candidates sweeps() {
  return newest_first("sweep", [] { return Sweeps(ledger_home(), Ledger::Mode::read).sweeps(); });
}

Candidates trash() try {
  Candidates list{{"last", "the run that was removed last"}};
  const auto runs = Trash(ledger_home()).runs();
  for (const auto& run : runs | std::views::reverse) list.push_back({run.id, run.name});
  return list;
} catch (const Error&) {
  return {};
}

/// The words as candidates, without descriptions.
Candidates bare(const std::vector<std::string>& words) {
  Candidates list;
  for (const auto& word : words) list.push_back({word, ""});
  return list;
}

/// The values that runs of the ledger have; empty if it cannot be read.
Candidates from_ledger(const auto& values) try {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  std::set<std::string> all;
  values(ledger, all);
  return bare({all.begin(), all.end()});
} catch (const Error&) {
  return {};
}

Candidates names() {
  return from_ledger([](const Ledger& ledger, auto& all) {
    for (const auto& run : ledger.runs(parse_filter("archived:any"))) all.insert(run.name);
  });
}

Candidates tags() {
  return from_ledger([](const Ledger& ledger, auto& all) {
    for (const auto& run : ledger.runs()) all.insert(run.tags.begin(), run.tags.end());
  });
}

Candidates groups() {
  return from_ledger([](const Ledger& ledger, auto& all) {
    for (const auto& run : ledger.runs())
      if (!run.group.empty()) all.insert(run.group);
  });
}

Candidates metrics() {
  return from_ledger([](const Ledger& ledger, auto& all) {
    for (const auto& name : ledger.metric_names()) all.insert(name);
  });
}

/// The term of a filter that `current` begins.
Candidates filter_terms(const std::string& current) try {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const auto found = ledger.complete_filter(current, current.size());
  Candidates list;
  for (const auto& candidate : found.candidates)
    list.push_back({current.substr(0, found.place.offset) + candidate.text, candidate.about});
  if (current.substr(0, found.place.offset).ends_with("sweep:"))
    list.push_back({current.substr(0, found.place.offset) + "last", "the newest sweep"});
  return list;
} catch (const Error&) {
  return {};
}

Candidates joined(Candidates list, const Candidates& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

/// The candidates for the last part of "A,B,...".
Candidates last_part(const std::string& current, const Candidates& parts) {
  const auto comma = current.rfind(',');
  const std::string before = comma == std::string::npos ? "" : current.substr(0, comma + 1);
  Candidates list;
  for (const auto& part : parts) list.push_back({before + part.text, part.about});
  return list;
}

/// "+good" and "-good" for each tag.
Candidates changes_of_tags() {
  Candidates list;
  for (const auto& tag : tags())
    for (const char* sign : {"+", "-"}) list.push_back({sign + tag.text, ""});
  return list;
}

/// Values of options that name something of the ledger or of recipes.
Candidates named_values(const CLI::App& app, const std::string& option) {
  if (option == "tag") return tags();
  if (option == "group") return groups();
  if (option == "metric" || option == "best" || (option == "name" && app.get_name() == "metrics")) return metrics();
  if (option == "x") return joined(bare({"step"}), metrics());
  if (option == "group-by") return keys();
  if (option == "sort") return joined(fields(), joined(metrics(), keys()));
  if (option == "strategy") return bare(strategy_names());
  return {};
}

/// Candidates for the value of an option or positional. Empty if any value or file is possible.
Candidates values(const CLI::App& app, const CLI::Option& option, const std::string& current) {
  auto name = option.get_lnames().empty() ? option.get_single_name() : option.get_lnames().front();
  if (name == "set") return overrides(current);
  if (name == "unset") return keys();
  if (auto choices = choices_of(option); !choices.empty()) return bare(choices);
  if (name == "columns") return last_part(current, joined(fields(), joined(keys(), metrics())));
  if (name == "keys") return last_part(current, keys());
  if (!option.get_positional()) return named_values(app, name);
  if (name == "filter") return filter_terms(current);
  if (name == "run" || name == "runs" || name == "other" || name == "model") {
    if (app.get_name() == "tag" && current.starts_with('+')) return changes_of_tags();
    const bool filters = option.get_items_expected_max() > 1;
    auto list = joined(runs(), names());
    if (app.get_name() == "group") list = joined(std::move(list), groups());
    return filters ? joined(std::move(list), filter_terms(current)) : list;
  }
  if (name == "tags") return tags();
  if (name == "trashed") return trash();
  if (name == "sweep") return sweeps();
  if (name == "source") return bare(import_sources());
  if (app.get_name() == "strategies") return bare(strategy_names());
  if (app.get_name() == "help") {
    auto list = name == "topic" ? keys() : Candidates{{"recipe", "keys of recipes"}};
    if (name != "topic")
      for (const auto& command : commands()) list.push_back({command.name, command.summary});
    return list;
  }
  return {};
}

/// The command line up to the incomplete word: the verb, the positionals so far, and the option that needs a value.
class Line {
 public:
  Line(CLI::App& app, const std::vector<std::string>& words) : app_(&app) {
    for (size_t i = 0; i + 1 < words.size(); ++i) take(words[i]);
  }

  Candidates next(const std::string& current) const {
    if (waiting_) return values(*app_, *waiting_, current);
    if (current.starts_with("-")) return app_->get_name() == "tag" ? joined(options(), changes_of_tags()) : options();
    Candidates list;
    for (auto* verb : app_->get_subcommands([](CLI::App* sub) { return !sub->get_group().empty(); }))
      list.push_back({verb->get_name(), verb->get_description()});
    if (!list.empty()) return list;
    const bool more_values = last_ && last_->check_lname("set");
    if (more_values && current.find('=') != std::string::npos) return overrides(current);
    const bool more_keys = last_ && last_->check_lname("unset");
    if (more_keys && is_further_value("--unset", current)) return keys();
    size_t index = 0;
    for (const auto* option : app_->get_options()) {
      if (!option->get_positional()) continue;
      const bool many = option->get_items_expected_max() > 1;  // takes the words after the first, too
      if (index++ == positionals_ || many) return values(*app_, *option, current);
    }
    return more_values ? overrides(current) : more_keys ? keys() : Candidates();
  }

 private:
  void take(const std::string& word) {
    if (waiting_) {
      last_ = waiting_;
      waiting_ = nullptr;
    } else if (word.starts_with("-")) {
      auto* option = app_->get_option_no_throw(word.substr(0, word.find('=')));
      const bool takes_value = option && option->get_items_expected_max() > 0;
      if (takes_value && word.find('=') == std::string::npos) waiting_ = option;
    } else if (auto verbs = app_->get_subcommands([&](CLI::App* sub) { return sub->check_name(word); });
               !verbs.empty()) {
      app_ = verbs.front();
    } else if (!last_ || !is_further_value(last_->get_name(), word)) {
      last_ = nullptr;
      ++positionals_;
    }
  }

  Candidates options() const {
    Candidates list;
    for (const auto* option : app_->get_options())
      if (!option->get_group().empty())
        for (const auto& name : option->get_lnames()) list.push_back({"--" + name, option->get_description()});
    return list;
  }

  CLI::App* app_;
  const CLI::Option* waiting_ = nullptr;  ///< the option whose value is the next word
  const CLI::Option* last_ = nullptr;     ///< the option whose values were the previous words
  size_t positionals_ = 0;
};

}  // namespace

std::string completions(CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return "";
  std::string out;
  for (const auto& candidate : Line(app, words).next(words.back()))
    if (candidate.text.starts_with(words.back()))
      out += candidate.text + (candidate.about.empty() ? "" : "\t" + candidate.about) + "\n";
  return out;
}

Action setup_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.footer(
      "Try it in this shell:\n  bash  source <(runner completion bash)\n  zsh   source <(runner completion zsh)\n"
      "  fish  runner completion fish | source");
  return [shell] {
    std::fputs(*shell == "bash" ? bash_script : *shell == "zsh" ? zsh_script : fish_script, stdout);
    return ExitCode::done;
  };
}

}  // namespace runner
