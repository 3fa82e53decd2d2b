// Constraints on points of a space: "model.dim % model.n_heads == 0".
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner::sweep {

/// Numbers, "strings", true and false, names of parameters, + - * / %, comparisons, and, or, not, parentheses, with
/// Python's precedence. % is floored, as in Python.
class Constraint {
 public:
  /// Throws Error(usage) with the mistake and its column in the text (from 1).
  explicit Constraint(const std::string& text);

  const std::string& text() const { return text_; }
  /// All names in the constraint, without duplicates.
  const std::vector<std::string>& names() const { return names_; }
  /// False if the constraint rejects the point. It holds if one of its names has no value (an inactive parameter).
  /// Throws Error(usage) if the values do not fit the operators.
  bool holds(const nlohmann::json& values) const;

  struct Node;

 private:
  std::string text_;
  std::vector<std::string> names_;
  std::shared_ptr<const Node> root_;
};

}  // namespace runner::sweep
