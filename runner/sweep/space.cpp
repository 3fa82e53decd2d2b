#include "runner/sweep/space.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner::sweep {

using nlohmann::json;

double Parameter::grain() const { return kind == Kind::integer ? std::max(1.0, step) : step; }

int64_t Parameter::count() const {
  if (kind == Kind::choice) return static_cast<int64_t>(choices.size());
  if (grain() > 0) return static_cast<int64_t>(std::floor((high - low) / grain() + 1e-9)) + 1;
  return low == high ? 1 : 0;
}

double Parameter::value_of(int64_t i) const { return low + grain() * static_cast<double>(i); }
double Parameter::last() const { return grain() > 0 ? value_of(count() - 1) : high; }

json Parameter::rounded(double number) const {
  double value = grain() > 0 ? low + grain() * std::round((number - low) / grain()) : number;
  value = std::clamp(value, low, last());
  return kind == Kind::integer ? json(static_cast<int64_t>(std::llround(value))) : json(value);
}

Parameter::Cell Parameter::cell(double value) const {
  double half = grain() / 2;
  return {log ? std::max(value - half, value / 2) : value - half, value + half};
}

json Parameter::at(double u) const {
  int64_t values = count();
  if (kind == Kind::choice)
    return choices[static_cast<size_t>(std::min(u * static_cast<double>(values), values - 1.0))];
  if (!log && values > 0)  // all values are equally likely
    return rounded(
        value_of(static_cast<int64_t>(std::min(u * static_cast<double>(values), static_cast<double>(values - 1)))));
  if (!log) return low + u * (high - low);
  double from = std::log(cell(low).from), to = std::log(cell(high).to);
  return rounded(std::exp(from + u * (to - from)));
}

double Parameter::unit(const json& value) const {
  if (kind == Kind::choice)
    return (static_cast<double>(choice_index(value)) + 0.5) / static_cast<double>(choices.size());
  double number = value.get<double>();
  int64_t values = count();
  if (!log && values > 0) return ((grain() > 0 ? (number - low) / grain() : 0) + 0.5) / static_cast<double>(values);
  if (!log) return (number - low) / (high - low);
  double from = std::log(cell(low).from), to = std::log(cell(high).to);
  return to > from ? (std::log(number) - from) / (to - from) : 0.5;
}

size_t Parameter::choice_index(const json& value) const {
  auto found = std::find(choices.begin(), choices.end(), value);
  RUNNER_CHECK(found != choices.end(), "{} of {}", value.dump(), name);
  return static_cast<size_t>(found - choices.begin());
}

int64_t Parameter::whole_grid() const {
  const int64_t all = count();
  return points == 0 || all <= points ? all : 0;
}

json Parameter::whole_grid_value(int64_t i) const {
  return kind == Kind::choice ? choices[static_cast<size_t>(i)] : rounded(value_of(i));
}

std::vector<json> Parameter::grid() const {
  constexpr int64_t values_max = 1'000'000;
  const int64_t all = whole_grid(), values = all > 0 ? all : points;
  if (values == 0)
    throw usage_error("a grid needs the number of values of `{}`: add points = N to its range", name);
  if (values > values_max) throw usage_error("`{}` has {} values, more than {}", name, values, values_max);
  std::vector<json> list;
  for (int64_t i = 0; i < values; ++i) {
    double share = values == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(values - 1);
    double between = log ? low * std::pow(last() / low, share) : low + share * (last() - low);
    json value = all > 0 ? whole_grid_value(i) : rounded(between);
    if (list.empty() || list.back() != value) list.push_back(value);
  }
  return list;
}

Space::Space(std::vector<Parameter> parameters, std::vector<Constraint> constraints, json constants)
    : constraints_(std::move(constraints)), constants_(std::move(constants)) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  auto known = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  auto hint = [&](const std::string& name) {
    auto near = nearest(name, names);
    return near ? fmt::format("; did you mean `{}`?", *near) : "; the space has " + join(names, ", ");
  };
  for (const auto& parameter : parameters)
    if (!parameter.parent.empty() && !known(parameter.parent))
      throw usage_error("`{}` depends on `{}`, which is not in the space{}", parameter.name, parameter.parent,
                        hint(parameter.parent));
  for (const auto& constraint : constraints_)
    for (const auto& name : constraint.names())
      if (!known(name) && !constants_.contains(name))
        throw usage_error(
            "the constraint `{}` uses `{}`, which is neither in the space nor a value of the recipe{}",
            constraint.text(), name, hint(name));
  while (!parameters.empty()) {
    auto ready = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
      return parameter.parent.empty() || find(parameter.parent);
    });
    if (ready == parameters.end())
      throw usage_error("`{}` depends on `{}`, which (perhaps through others) depends on it again",
                        parameters.front().name, parameters.front().parent);
    parameters_.push_back(*ready);
    parameters.erase(ready);
  }
}

const Parameter* Space::find(const std::string& name) const {
  for (const auto& parameter : parameters_)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

bool Space::active(const Parameter& parameter, const json& point) const {
  if (parameter.parent.empty()) return true;
  auto value = point.find(parameter.parent);
  return value != point.end() &&
         std::find(parameter.when.begin(), parameter.when.end(), *value) != parameter.when.end();
}

bool Space::accepts(const json& point) const {
  if (constraints_.empty()) return true;
  json values = constants_;
  for (const auto& parameter : parameters_) values.erase(parameter.name);
  values.update(point);
  return std::all_of(constraints_.begin(), constraints_.end(),
                     [&](const Constraint& constraint) { return constraint.holds(values); });
}

json Space::point(const Pick& pick) const {
  json point = json::object();
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (active(parameters_[i], point)) point[parameters_[i].name] = pick(i, parameters_[i]);
  return point;
}

void Space::nothing_left(int draws) const {
  std::vector<std::string> texts;
  for (const auto& constraint : constraints_) texts.push_back("`" + constraint.text() + "`");
  throw usage_error("{} draws in a row were rejected by the constraints: {}", draws, join(texts, ", "));
}

}  // namespace runner::sweep
