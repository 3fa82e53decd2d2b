#include "runner/selection/rules.hpp"

#include <fmt/args.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <sstream>
#include <stdexcept>

#include "runner/base/text.hpp"
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
  rule.ddp_fits = table["ddp_fits"].value<bool>();
  rule.parameters_from = table["parameters_from"].value_or(rule.parameters_from);
  rule.parameters_below = table["parameters_below"].value_or(rule.parameters_below);
  rule.choose = texts(table["choose"].as_array());
  return rule;
}

Form read_form(const std::string& name, const toml::table& table) {
  Form form{name, table["strategy"].value<std::string>().value()};
  form.zero = table["zero"].value_or(std::string());
  if (const auto* options = table["options"].as_table()) {
    std::ostringstream text;
    text << toml::json_formatter{*options};
    form.options = nlohmann::json::parse(text.str());
  }
  return form;
}

RuleBook read_rule_book() {
  toml::table table = toml::parse(selection_rules_text, std::string_view("schemas/selection_rules.toml"));
  RuleBook book;
  for (const auto& rule : *table["rule"].as_array()) book.rules.push_back(read_rule(*rule.as_table()));
  for (const auto& [name, form] : *table["forms"].as_table())
    book.forms.emplace(std::string(name.str()), read_form(std::string(name.str()), *form.as_table()));
  book.considered = texts(table["considered"].as_array());
  book.sharding = texts(table["ladder"]["sharding"].as_array());
  book.offload = texts(table["ladder"]["offload"].as_array());
  return book;
}

}  // namespace

bool SelectionRule::holds(const Situation& situation) const {
  auto agrees = [](const std::optional<bool>& wanted, bool is) { return !wanted || *wanted == is; };
  return agrees(several_devices, situation.devices > 1) && agrees(several_nodes, situation.nodes > 1) &&
         agrees(ddp_fits, situation.ddp_fits) && situation.parameters >= parameters_from &&
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
