// Rows of the table of recipe keys: binds an option to a member of a section of Recipe. One function for each section adds its
// keys.
#pragma once
#include <utility>

#include "runner/base/option_table.hpp"
#include "runner/config/key_table.hpp"

namespace runner::keys {

using T = Option::Type;

/// The properties of a key in addition to those of an option.
struct Facts {
  std::string family = "";
  bool quiet = false;
  Need needs = {};
  nlohmann::json schema = nullptr;
  bool secret = false;
  bool tokens = false;
};

/// Gives integers of [model], [data] and [train], also those in tables, an upper bound if they have none: products of two fit into 64 bits.
inline void bound(Option& option, const std::string& section) {
  const bool integers = option.type == T::integer || option.type == T::integer_or_auto || option.type == T::list;
  const bool model = section == "model";
  if (integers && !option.maximum && (model || section == "data" || section == "train"))
    option.maximum = model ? 1 << 24 : (int64_t{1} << 31) - 1;
  for (auto& field : option.fields) bound(field, section);
}

/// The mistake in a value that is no table.
inline std::optional<std::string> not_a_table(const nlohmann::json& value) {
  return value.is_object() ? std::nullopt : std::optional<std::string>("");
}

/// Adds the keys of one section.
template <typename Owner>
class Adder {
 public:
  Adder(std::vector<Key>& keys, std::string section, Owner Recipe::*owner)
      : keys_(keys), section_(std::move(section)), owner_(owner) {}

  /// A key that sets `member`.
  template <typename Value>
  void operator()(Option option, Value Owner::*member, Facts facts = {}) {
    if (option.type == T::boolean) option.type = MemberType<Value>::value;
    add(
        std::move(option), std::move(facts),
        [member](Owner& owner, const nlohmann::json& value) { assign(owner.*member, value); },
        [member](const Owner& owner) { return obtain(owner.*member); });
  }
  /// An integer that may be "auto", which `member` has as `automatic`.
  void or_auto(Option option, std::optional<int64_t> Owner::*member, std::optional<int64_t> automatic) {
    option.type = T::integer_or_auto;
    add(
        std::move(option), {},
        [=](Owner& owner, const nlohmann::json& value) {
          owner.*member = value.is_string() ? automatic : std::optional(value.get<int64_t>());
        },
        [=](const Owner& owner) {
          return owner.*member == automatic ? nlohmann::json("auto") : obtain(owner.*member);
        });
  }
  /// A key whose value is a table with the fields of `table`.
  template <typename Value>
  requires std::is_class_v<Value>
  void operator()(Option option, std::optional<Value> Owner::*member, const OptionTable<Value>& table,
                  Facts facts = {}) {
    option.fields = table.options();
    add(
        std::move(option), std::move(facts),
        [=](Owner& owner, const nlohmann::json& value) { owner.*member = table.read(value); },
        [=](const Owner& owner) { return owner.*member ? table.print(*(owner.*member)) : nlohmann::json(); });
  }
  /// A key whose value is a list of tables.
  template <typename Value>
  requires std::is_class_v<Value>
  void operator()(Option option, std::vector<Value> Owner::*member, const OptionTable<Value>& table, Facts facts = {}) {
    option.fields = table.options();
    auto set = [=](Owner& owner, const nlohmann::json& list) {
      (owner.*member).clear();
      for (const auto& item : list) (owner.*member).push_back(table.read(item));
    };
    auto get = [=](const Owner& owner) {
      auto list = nlohmann::json::array();
      for (const auto& item : owner.*member) list.push_back(table.print(item));
      return list.empty() ? nlohmann::json() : list;
    };
    add(std::move(option), std::move(facts), set, get);
  }
  /// A key with its own conversion.
  template <typename Set, typename Get>
  void add(Option option, Facts facts, Set set, Get get) {
    bound(option, section_);
    Key key{std::move(option)};
    key.section = section_;
    key.family = std::move(facts.family);
    key.quiet = facts.quiet;
    key.needs = std::move(facts.needs);
    key.schema = std::move(facts.schema);
    key.secret = facts.secret;
    key.tokens = facts.tokens;
    key.set = [owner = owner_, set](Recipe& recipe, const nlohmann::json& value) { set(recipe.*owner, value); };
    key.get = [owner = owner_, get](const Recipe& recipe) -> nlohmann::json { return get(recipe.*owner); };
    keys_.push_back(std::move(key));
  }

 private:
  std::vector<Key>& keys_;
  std::string section_;
  Owner Recipe::*owner_;
};

// The sections, in the order of the table.
void add_run(std::vector<Key>& keys);
void add_model(std::vector<Key>& keys);
void add_decoder(std::vector<Key>& keys);
void add_row_models(Adder<Recipe::Model>& add);
void add_row_data(Adder<Recipe::Data>& add);
void add_data(std::vector<Key>& keys);
void add_fine_tune(std::vector<Key>& keys);
void add_strategy(std::vector<Key>& keys);
void add_precision(std::vector<Key>& keys);
void add_devices(std::vector<Key>& keys);
void add_optimizer(std::vector<Key>& keys);
void add_lr_scheduler(std::vector<Key>& keys);
void add_train(std::vector<Key>& keys);
void add_checkpoint(std::vector<Key>& keys);
void add_logging(std::vector<Key>& keys);
void add_health(std::vector<Key>& keys);
void add_activation_checkpointing(std::vector<Key>& keys);
void add_selection(std::vector<Key>& keys);
void add_hooks(std::vector<Key>& keys);
void add_plugins(std::vector<Key>& keys);

}  // namespace runner::keys
