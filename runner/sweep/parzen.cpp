#include "runner/sweep/parzen.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace runner::sweep {

namespace {

using nlohmann::json;

constexpr size_t full_weights = 25;

double normal_mass(double from, double to, double center, double width) {
  double a = (from - center) / width * std::numbers::sqrt2 / 2, b = (to - center) / width * std::numbers::sqrt2 / 2;
  // Uses the tail without cancellation.
  return a > 0 ? 0.5 * (std::erfc(a) - std::erfc(b)) : 0.5 * (std::erfc(-b) - std::erfc(-a));
}

std::vector<double> observation_weights(size_t count, double prior_weight) {
  std::vector<double> weights(count, 1.0);
  if (count >= full_weights) {
    size_t old = count - full_weights;
    for (size_t i = 0; i < old; ++i) {
      double first = 1.0 / static_cast<double>(count);
      weights[i] = old == 1 ? first : first + (1 - first) * static_cast<double>(i) / static_cast<double>(old - 1);
    }
  }
  weights.push_back(prior_weight);
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

Parzen::Parzen(const Parameter& parameter, const std::vector<json>& observed, double prior_weight)
    : parameter_(&parameter), weights_(observation_weights(observed.size(), prior_weight)) {
  if (parameter.kind == Parameter::Kind::choice) {
    prior_ = prior_weight / static_cast<double>(observed.size() + 1);
    for (const auto& value : observed) observed_choices_.push_back(parameter.choice_index(value));
    return;
  }
  grain_ = parameter.grain();
  low_ = parameter.cell(parameter.low).from;
  high_ = parameter.cell(parameter.high).to;
  std::vector<double> centers;
  for (const auto& value : observed) centers.push_back(value.get<double>());
  if (parameter.log) {
    low_ = std::log(low_);
    high_ = std::log(high_);
    for (double& center : centers) center = std::log(center);
  }
  place_kernels(centers);
}

void Parzen::place_kernels(const std::vector<double>& observed) {
  centers_ = observed;
  std::vector<size_t> order(observed.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return observed[a] < observed[b]; });
  double range = high_ - low_;
  double narrowest = range / std::min(100.0, 2.0 + static_cast<double>(observed.size()));
  widths_.assign(observed.size(), range);
  for (size_t i = 0; i < order.size(); ++i) {
    bool first = i == 0, last = i + 1 == order.size();
    double center = observed[order[i]];
    double left = center - (first ? low_ : observed[order[i - 1]]);
    double right = (last ? high_ : observed[order[i + 1]]) - center;
    // The ends of the range are neighbours of a lone observation only.
    double width = first && !last ? right : last && !first ? left : std::max(left, right);
    widths_[order[i]] = std::clamp(width, narrowest, range);
  }
  centers_.push_back((low_ + high_) / 2);
  widths_.push_back(range);
  if (range <= 0) widths_.assign(widths_.size(), 1);
  for (size_t i = 0; i < centers_.size(); ++i)
    masses_.push_back(std::max(normal_mass(low_, high_, centers_[i], widths_[i]), 1e-12));
}

size_t Parzen::pick_kernel(RandomBits& random) const {
  double u = random.uniform();
  for (size_t i = 0; i + 1 < weights_.size(); ++i)
    if ((u -= weights_[i]) < 0) return i;
  return weights_.size() - 1;
}

json Parzen::draw(size_t kernel, RandomBits& random) const {
  if (parameter_->kind == Parameter::Kind::choice) {
    double u = random.uniform();
    auto choices = parameter_->choices.size();
    for (size_t i = 0; i + 1 < choices; ++i)
      if ((u -= choice_density(kernel, i)) < 0) return parameter_->choices[i];
    return parameter_->choices.back();
  }
  if (high_ <= low_) return parameter_->at(0);
  double x;
  do x = centers_[kernel] + widths_[kernel] * random.normal();  // the center is inside, so at least a third of draws are accepted
  while (x < low_ || x >= high_);
  return parameter_->rounded(parameter_->log ? std::exp(x) : x);
}

double Parzen::choice_density(size_t kernel, size_t choice) const {
  auto choices = static_cast<double>(parameter_->choices.size());
  if (kernel >= observed_choices_.size()) return 1 / choices;
  double hit = choice == observed_choices_[kernel] ? 1 : 0;
  return (prior_ + hit) / (prior_ * choices + 1);
}

void Parzen::multiply(const json& value, std::vector<double>& products) const {
  if (parameter_->kind == Parameter::Kind::choice) {
    const size_t choice = parameter_->choice_index(value);
    for (size_t kernel = 0; kernel < products.size(); ++kernel) products[kernel] *= choice_density(kernel, choice);
    return;
  }
  double number = value.get<double>();
  auto [from, to] = parameter_->cell(number);
  if (parameter_->log) {
    from = std::log(from);
    to = std::log(to);
    number = std::log(number);
  }
  if (grain_ > 0) {
    for (size_t kernel = 0; kernel < products.size(); ++kernel)
      products[kernel] *= normal_mass(from, to, centers_[kernel], widths_[kernel]) / masses_[kernel];
    return;
  }
  const double scale = std::sqrt(2 * std::numbers::pi);
  for (size_t kernel = 0; kernel < products.size(); ++kernel) {
    double z = (number - centers_[kernel]) / widths_[kernel];
    products[kernel] *= std::exp(-0.5 * z * z) / (widths_[kernel] * scale) / masses_[kernel];
  }
}

double log_joint_density(const std::vector<const Parzen*>& estimates, const std::vector<json>& values) {
  std::vector<double> products = estimates.front()->weights();
  for (size_t i = 0; i < estimates.size(); ++i) estimates[i]->multiply(values[i], products);
  double sum = 0;
  for (double product : products) sum += product;
  return std::log(std::max(sum, 1e-300));
}

}  // namespace runner::sweep
