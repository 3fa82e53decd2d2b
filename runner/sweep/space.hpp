// The space of a sweep: parameters with their ranges, when they are active, and constraints.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner::sweep {

/// Constraints on points of a space: "model.dim % model.n_heads == 0".
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

/// One parameter. Numbers are drawn uniformly between low and high, or uniformly in logarithms if `log`. Both ends are
/// included if they are on the grid of `step`.
struct Parameter {
  enum class Kind { real, integer, choice };

  std::string name;  ///< a key of the recipe
  Kind kind = Kind::real;
  double low = 0, high = 1;
  /// Doubles do not hold all integers beyond 2^53: there, `low` and `high` of an integer are distances from `origin`, and a `high` beyond
  /// 2^53 stands for `most`.
  int64_t origin = 0, most = 1;
  bool log = false;
  double step = 0;                           ///< 0: none; integers have 1 at least
  std::vector<nlohmann::json> choices = {};  ///< for kind choice, at least one
  int64_t points = 0;                        ///< for grids: number of values of a range; 0: not set

  /// The parameter is active only if `parent` has one of the values in `when`. An empty `parent` means always.
  std::string parent = "";
  std::vector<nlohmann::json> when = {};

  /// The number of values; 0: infinite.
  int64_t count() const;
  /// Maps `u` in [0, 1) to a value.
  nlohmann::json at(double u) const;
  /// The middle of what at() maps to `value`; choices by their index.
  double unit(const nlohmann::json& value) const;
  double unit_of(double distance) const;
  /// The index of the value in `choices`. Throws std::logic_error if it is not there.
  size_t choice_index(const nlohmann::json& value) const;
  /// The values that a grid visits, in order: all values of a finite parameter, or `points` values, without those that
  /// round to the same value. Throws Error(usage) if a range has no `points`.
  std::vector<nlohmann::json> grid() const;
  /// The length of grid() if it has all values of a finite parameter, and the i-th of them, without making the list; 0 otherwise.
  int64_t whole_grid() const;
  nlohmann::json whole_grid_value(int64_t i) const;

  /// For numbers: the distance between neighbouring values; 0 for continuous ranges.
  double grain() const;
  /// A value as a distance from `origin`, and the value at a distance.
  double distance(const nlohmann::json& value) const;
  nlohmann::json value_at(double distance) const;
  /// The value closest to a distance from `origin`.
  nlohmann::json rounded(double number) const;
  /// The interval that rounds to `value`: half a grain on both sides, so that the ends of a range are as likely as
  /// other values. In logarithmic ranges it does not reach below half of the value.
  struct Cell {
    double from, to;
  };
  Cell cell(double value) const;

 private:
  double last_index() const;         ///< count() - 1, for finite parameters
  double last() const;               ///< the greatest value
  double value_of(int64_t i) const;  ///< for finite parameters: the i-th value
};

/// Points are JSON objects: name -> value of the active parameters.
class Space {
 public:
  Space() = default;
  /// `constants`: further names that constraints may use, with their values. Throws Error(usage) for a parent that is
  /// not in the space, for a cycle of parents, and for an unknown name in a constraint, with the nearest name.
  Space(std::vector<Parameter> parameters, std::vector<Constraint> constraints = {},
        nlohmann::json constants = nlohmann::json::object());

  /// Parents come before children; otherwise the given order.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }
  const Parameter* find(const std::string& name) const;
  bool active(const Parameter& parameter, const nlohmann::json& point) const;
  bool accepts(const nlohmann::json& point) const;

  /// Makes a point from a function that returns the value of each active parameter, given its index. Does not check
  /// constraints.
  using Pick = std::function<nlohmann::json(size_t index, const Parameter& parameter)>;
  nlohmann::json point(const Pick& pick) const;

  /// How often methods draw again before they report that no point satisfies the constraints.
  static constexpr int draws_max = 10'000;
  /// The error for that case.
  [[noreturn]] void nothing_left(int draws) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  nlohmann::json constants_;
};

}  // namespace runner::sweep
