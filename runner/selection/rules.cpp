#include "runner/selection/rules.hpp"

#include <fmt/args.h>
#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

#include "runner/base/text.hpp"
#include "runner/base/toml.hpp"
#include "runner/selection/tables.hpp"

namespace runner {

namespace {

std::vector<std::string> texts(const toml::array* array) {
  std::vector<std::string> list;
  for (const auto& item : *array) list.push_back(item.value<std::string>().value());
  return list;
}

std::optional<bool> is_several(const toml::table& table, const char* key) {
  auto value = table[key].value<std::string>();
  return value ? std::optional(*value == "several") : std::nullopt;
}

SelectionRule read_rule(const toml::table& table) {
  SelectionRule rule;
  rule.id = table["id"].value<std::string>().value();
  rule.rule = table["rule"].value<std::string>().value();
  rule.source = table["source"].value<std::string>().value();
  rule.differs = table["differs"].value_or(std::string());
  rule.because = table["because"].value<std::string>().value();
  rule.several_devices = is_several(table, "devices");
  rule.several_nodes = is_several(table, "nodes");
  rule.replica_fits = table["replica_fits"].value<bool>();
  rule.parameters_from = table["parameters_from"].value_or(rule.parameters_from);
  rule.parameters_below = table["parameters_below"].value_or(rule.parameters_below);
  rule.choose = texts(table["choose"].as_array());
  return rule;
}

nlohmann::json options_of(const toml::table& table) {
  const auto* options = table["options"].as_table();
  if (!options) return nlohmann::json::object();
  std::ostringstream text;
  text << toml::json_formatter{*options};
  return nlohmann::json::parse(text.str());
}

Form read_form(const std::string& name, const toml::table& table) {
  return {.name = name,
          .strategy = table["strategy"].value<std::string>().value(),
          .options = options_of(table),
          .twin = table["twin"].value_or(std::string()),
          .only = table["only"].value_or(std::string())};
}

Saving read_saving(const toml::table& table) {
  return {.form = table["form"].value_or(std::string()),
          .name = table["name"].value_or(std::string()),
          .options = options_of(table),
          .only = table["only"].value_or(std::string()),
          .price = table["price"].value<std::string>().value(),
          .price_of_options = table["price_of_options"].value_or(std::string())};
}

RuleBook read_rule_book() {
  toml::table table = toml::parse(selection_rules_text, std::string_view("schemas/selection_rules.toml"));
  RuleBook book;
  for (const auto& rule : *table["rule"].as_array()) book.rules.push_back(read_rule(*rule.as_table()));
  for (const auto& [name, form] : *table["forms"].as_table())
    book.forms.emplace(std::string(name.str()), read_form(std::string(name.str()), *form.as_table()));
  for (const auto& [name, policy] : *table["policies"].as_table())
    book.policies.emplace(std::string(name.str()), PolicyText{policy.at_path("rule").value<std::string>().value(),
                                                              policy.at_path("source").value<std::string>().value()});
  for (const auto& saving : *table["saving"].as_array()) book.savings.push_back(read_saving(*saving.as_table()));
  const auto& mesh = *table["mesh"].as_table();
  book.mesh = {.parameters_from = mesh["parameters_from"].value<int64_t>().value(),
               .rule = mesh["rule"].value<std::string>().value(),
               .source = mesh["source"].value<std::string>().value(),
               .forms = texts(mesh["forms"].as_array())};
  book.replica = table["replica"].value<std::string>().value();
  book.preferences = texts(table["preferences"].as_array());
  book.considered = texts(table["considered"].as_array());
  book.sharding = texts(table["ladder"]["sharding"].as_array());
  book.offload = texts(table["ladder"]["offload"].as_array());
  return book;
}

}  // namespace

bool SelectionRule::holds(const Situation& situation) const {
  auto agrees = [](const std::optional<bool>& wanted, bool is) { return !wanted || *wanted == is; };
  return agrees(several_devices, situation.devices > 1) && agrees(several_nodes, situation.nodes > 1) &&
         agrees(replica_fits, situation.replica_fits) && situation.parameters >= parameters_from &&
         situation.parameters < parameters_below;
}

std::string SelectionRule::sentence(const Situation& situation) const {
  return fmt::format(fmt::runtime(because), fmt::arg("parameters", format_parameters(situation.parameters)),
                     fmt::arg("devices", situation.devices), fmt::arg("nodes", situation.nodes));
}

const SelectionRule& RuleBook::match(const Situation& situation) const {
  for (const auto& rule : rules)
    if (rule.holds(situation)) return rule;
  throw std::logic_error("no selection rule holds");
}

const RuleBook& rule_book() {
  static const RuleBook book = read_rule_book();
  return book;
}

}  // namespace runner
