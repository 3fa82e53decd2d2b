// The documented rules of `strategy = "auto"`, from schemas/selection_rules.toml.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// The input of the rules.
struct Situation {
  int64_t parameters = 0;  ///< number of unique parameters
  int devices = 1;         ///< data ranks of the job
  int nodes = 1;
  bool replica_fits = true;  ///< RuleBook::replica at micro-batch 1
};

struct SelectionRule {
  std::string id, rule, source;
  std::string differs;  ///< how it differs from the source; empty: it does not
  std::string because;  ///< {parameters}, {devices} and {nodes} are replaced by numbers
  std::optional<bool> several_devices, several_nodes, replica_fits;
  int64_t parameters_from = 0, parameters_below = std::numeric_limits<int64_t>::max();
  std::vector<std::string> choose;  ///< forms; the first that fits is chosen

  bool holds(const Situation& situation) const;
  std::string sentence(const Situation& situation) const;
};

/// A strategy with options, under the name that the rules use.
struct Form {
  std::string name, strategy;
  nlohmann::json options = nlohmann::json::object();
  std::string twin = "";  ///< the form of another strategy that may replace it; empty: none
  std::string only = "";  ///< "device_memory", "groups": where the form differs from others; empty: everywhere
};

/// The rule and the source of a policy, in words.
struct PolicyText {
  std::string rule, source;
};

/// A change of the strategy that saves memory: to a form, or to a name with options.
struct Saving {
  std::string form, name;  ///< one of them is empty
  nlohmann::json options = nlohmann::json::object();
  std::string only;  ///< as Form::only
  std::string price, price_of_options;
};

/// When meshes with a tensor or a pipeline axis are considered.
struct MeshRule {
  int64_t parameters_from = 0;
  std::string rule, source;
  std::vector<std::string> forms;  ///< of the strategy on the data axis
};

struct RuleBook {
  std::vector<SelectionRule> rules;
  std::vector<std::string> considered;         ///< forms, in the order of listings
  std::vector<std::string> sharding, offload;  ///< forms of the ladder, the cheapest first
  std::map<std::string, Form> forms;
  std::string replica;                   ///< the form that keeps a copy of the model on each rank
  std::vector<std::string> preferences;  ///< strategies for selection.prefer; the first is the default
  MeshRule mesh;
  std::map<std::string, PolicyText> policies;
  std::vector<Saving> savings;

  const Form& form(const std::string& name) const { return forms.at(name); }
  /// The first rule that holds; the rules cover every situation.
  const SelectionRule& match(const Situation& situation) const;
};

const RuleBook& rule_book();

}  // namespace runner
