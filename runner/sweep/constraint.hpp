// Constraints on points of a space: "model.dim % model.n_heads == 0".
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner::sweep {

/// Numbers, "strings", true and false, names of parameters, + - * / %, comparisons, and, or, not, parentheses, with
/// Python's precedence. % is floored, as in Python.
class Constraint {
 public:
  /// Throws Error(usage) with what is wrong and the column (from 1) within the text.
  explicit Constraint(const std::string& text);

  const std::string& text() const { return text_; }
  /// Every name in it, once each.
  const std::vector<std::string>& names() const { return names_; }
  /// False where it rejects the point. A name without a value (its parameter is inactive) makes it hold. Throws
  /// Error(usage) where the values do not fit the operators.
  bool holds(const nlohmann::json& values) const;

  struct Node;

 private:
  std::string text_;
  std::vector<std::string> names_;
  std::shared_ptr<const Node> root_;
};

}  // namespace runner::sweep
