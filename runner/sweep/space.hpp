// What a sweep varies: parameters with their ranges, when they are active, and which points are out.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/sweep/constraint.hpp"

namespace runner::sweep {

/// One parameter. Numbers are drawn evenly between low and high (of their logarithms, if `log`), both included where
/// they lie on the grid of `step`.
struct Parameter {
  enum class Kind { real, integer, choice };

  std::string name;  ///< a key of the recipe
  Kind kind = Kind::real;
  double low = 0, high = 1;
  bool log = false;
  double step = 0;                           ///< 0: none; integers have 1 at least
  std::vector<nlohmann::json> choices = {};  ///< of kind choice, at least one
  int64_t points = 0;                        ///< grid: values of a range; 0: not said

  /// Active only where `parent` has one of `when`; empty: always.
  std::string parent = "";
  std::vector<nlohmann::json> when = {};

  /// How many values there are; 0: endless.
  int64_t count() const;
  /// `u` in [0, 1) as a value.
  nlohmann::json at(double u) const;
  /// The middle of what at() maps to `value`; choices by their index.
  double unit(const nlohmann::json& value) const;
  /// The value's place among choices. Throws std::logic_error where it is none.
  size_t choice_index(const nlohmann::json& value) const;
  /// The values a grid visits, in order: all of a finite parameter unless `points` says fewer, `points` of a range,
  /// less those that round to the same. Throws Error(usage) where a range has none.
  std::vector<nlohmann::json> grid() const;

  /// Of numbers. The distance of neighbours; 0: there are none.
  double grain() const;
  /// The value closest to `number`.
  nlohmann::json rounded(double number) const;
  /// What rounds to `value`, so that the ends of a range are as likely as others: half a grain to both sides, where the
  /// range is logarithmic not nearer to 0 than half of the value.
  struct Cell {
    double from, to;
  };
  Cell cell(double value) const;

 private:
  double last() const;               ///< the greatest value
  double value_of(int64_t i) const;  ///< of finite ones, the i-th
};

/// Points are JSON objects: name -> value of the active parameters.
class Space {
 public:
  Space() = default;
  /// `constants`: values of names that constraints may use besides the parameters'. Throws Error(usage): a parent that
  /// is not in the space, circles among parents, names of constraints that are neither, the nearest name in each.
  Space(std::vector<Parameter> parameters, std::vector<Constraint> constraints = {},
        nlohmann::json constants = nlohmann::json::object());

  /// Parents before children, else as given.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Constraint>& constraints() const { return constraints_; }
  const Parameter* find(const std::string& name) const;
  bool active(const Parameter& parameter, const nlohmann::json& point) const;
  bool accepts(const nlohmann::json& point) const;

  /// A point from a function that gives each active parameter, by its index, its value. Not held against the
  /// constraints.
  using Pick = std::function<nlohmann::json(size_t index, const Parameter& parameter)>;
  nlohmann::json point(const Pick& pick) const;

  /// How often methods draw anew before they say that constraints leave nothing.
  static constexpr int draws_max = 10'000;
  /// The error that says so.
  [[noreturn]] void nothing_left(int draws) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Constraint> constraints_;
  nlohmann::json constants_;
};

}  // namespace runner::sweep
