// The tree-structured Parzen estimator.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "runner/sweep/methods.hpp"
#include "runner/sweep/random_bits.hpp"

namespace runner::sweep {

namespace {

// A Parzen estimate of one parameter: kernels at the observed values, and a prior over the whole range.

/// Kernel i belongs to observation i, the last kernel to the prior. Numbers have normal kernels, truncated to the range. Their
/// width is the distance to the farther neighbour, but at least range / min(100, n + 2), in logarithms for logarithmic
/// parameters. Choices have counts. The newest 25 observations have full weight; the weight of older ones falls with age. All of
/// this follows Optuna 5.
class Parzen {
 public:
  /// `observed`: oldest first. `parameter` must outlive this.
  Parzen(const Parameter& parameter, const std::vector<nlohmann::json>& observed, double prior_weight);

  /// Depends only on the number of observations.
  const std::vector<double>& weights() const { return weights_; }
  size_t pick_kernel(RandomBits& random) const;
  nlohmann::json draw(size_t kernel, RandomBits& random) const;
  /// Multiplies each kernel's density at `value` (probability, for values with a grain), without its weight, into
  /// products[kernel].
  void multiply(const nlohmann::json& value, std::vector<double>& products) const;

 private:
  double choice_density(size_t kernel, size_t choice) const;
  void place_kernels(const std::vector<double>& observed);

  const Parameter* parameter_;
  std::vector<double> weights_;            ///< sum 1
  std::vector<double> centers_, widths_;   ///< for numbers
  std::vector<double> masses_;             ///< mass of each kernel within the range
  std::vector<size_t> observed_choices_;   ///< for choices
  double prior_ = 0;                       ///< for choices: prior weight of each choice within a kernel
  double low_ = 0, high_ = 0, grain_ = 0;  ///< the range in the kernels' coordinate; grain in values
};

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
  for (const auto& value : observed) centers.push_back(parameter.distance(value));
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
  do
    x = centers_[kernel] +
        widths_[kernel] * random.normal();  // the center is inside, so at least a third of draws are accepted
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
  double number = parameter_->distance(value);
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

/// Joint estimate of several parameters: the log of the sum over kernels of weight x the product of all densities. `estimates` must
/// be of the same observations; values[i] belongs to estimates[i].
double log_joint_density(const std::vector<const Parzen*>& estimates, const std::vector<json>& values) {
  std::vector<double> products = estimates.front()->weights();
  for (size_t i = 0; i < estimates.size(); ++i) estimates[i]->multiply(values[i], products);
  double sum = 0;
  for (double product : products) sum += product;
  return std::log(std::max(sum, 1e-300));
}

constexpr size_t good_max = 25;
constexpr int64_t checked_each =
    64;  ///< number of proposals that are replayed; a proposal costs as many steps as there are ended trials

class Tpe : public Method {
 public:
  Tpe(const Space& space, uint64_t seed, const TpeOptions& options) : space_(space), seed_(seed), options_(options) {}

  Proposal propose(int64_t number) override {
    auto stream = static_cast<uint64_t>(number);
    auto parameters = static_cast<int64_t>(ended_.size()) < options_.n_startup_trials
                          ? random_point(space_, seed_, stream)
                          : promising(stream);
    running_[number] = parameters;
    return Proposal::of({number, std::move(parameters)});
  }

  bool adopt(const Trial& recorded) override {
    if (recorded.number < checked_each || recorded.number % checked_each == 0) return false;
    running_[recorded.number] = recorded.parameters;
    return true;
  }

  void finished(const Trial& trial, const Ending& ending) override {
    running_.erase(trial.number);
    ended_.erase(trial.number);
    if (ending.kind != Ending::Kind::failed || ending.diverged) ended_[trial.number] = {trial.parameters, ending};
  }

 private:
  struct Ended {
    nlohmann::json parameters;
    Ending ending;
  };
  struct Split {
    std::vector<const nlohmann::json*> good, bad;  ///< oldest first
  };

  /// Order: complete, then pruned, then diverged trials. Complete ones by value; pruned ones by their last step, then by value.
  static bool better(const Ended& a, const Ended& b) {
    auto rank = [](const Ended& ended) {
      const auto& ending = ended.ending;
      if (ending.kind == Ending::Kind::failed || std::isnan(ending.value)) return 2;
      return ending.kind == Ending::Kind::pruned ? 1 : 0;
    };
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (rank(a) == 2) return false;
    if (rank(a) == 1 && a.ending.step != b.ending.step) return a.ending.step > b.ending.step;
    return a.ending.value < b.ending.value;
  }

  Split split() const {
    std::vector<std::pair<int64_t, const Ended*>> order;
    for (const auto& [number, ended] : ended_) order.emplace_back(number, &ended);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return better(*a.second, *b.second); });
    auto good = std::min(good_max, static_cast<size_t>(std::ceil(options_.gamma * static_cast<double>(order.size()))));
    auto middle = order.begin() + static_cast<std::ptrdiff_t>(good);
    std::sort(order.begin(), middle);
    std::sort(middle, order.end());
    Split split;
    for (auto item = order.begin(); item != order.end(); ++item)
      (item < middle ? split.good : split.bad).push_back(&item->second->parameters);
    if (options_.constant_liar)
      for (const auto& [number, parameters] : running_) split.bad.push_back(&parameters);
    return split;
  }

  /// The values of a parameter in the trials where it is active.
  static std::vector<nlohmann::json> values_of(const std::vector<const nlohmann::json*>& points,
                                               const Parameter& parameter) {
    std::vector<nlohmann::json> values;
    for (const auto* point : points)
      if (auto found = point->find(parameter.name); found != point->end()) values.push_back(*found);
    return values;
  }

  /// Groups of parameters that are estimated jointly: with `multivariate`, all parameters that are always active; the others alone.
  std::vector<std::vector<size_t>> groups() const {
    std::vector<std::vector<size_t>> groups;
    std::vector<size_t> together;
    for (size_t i = 0; i < space_.parameters().size(); ++i) {
      bool always = space_.parameters()[i].parent.empty();
      if (always && options_.multivariate)
        together.push_back(i);
      else
        groups.push_back({i});
    }
    if (!together.empty()) groups.push_back(together);
    return groups;
  }

  nlohmann::json promising(uint64_t stream) const {
    RandomBits random(seed_, stream);
    Split points = split();
    std::vector<Parzen> good, bad;
    for (const auto& parameter : space_.parameters()) {
      good.emplace_back(parameter, values_of(points.good, parameter), options_.prior_weight);
      bad.emplace_back(parameter, values_of(points.bad, parameter), options_.prior_weight);
    }
    const auto all_groups = groups();
    for (int draw = 0; draw < Space::draws_max; ++draw) {
      std::vector<nlohmann::json> values(good.size());
      for (const auto& group : all_groups) best_of(group, good, bad, random, values);
      auto point = space_.point([&](size_t index, const Parameter&) { return values[index]; });
      if (space_.accepts(point)) return point;
    }
    space_.nothing_left(Space::draws_max);
  }

  /// Draws n_ei_candidates points from the good estimate, and stores the one with the best ratio of good to bad density in `values`.
  void best_of(const std::vector<size_t>& group, const std::vector<Parzen>& good, const std::vector<Parzen>& bad,
               RandomBits& random, std::vector<nlohmann::json>& values) const {
    std::vector<const Parzen*> good_group, bad_group;
    for (size_t index : group) {
      good_group.push_back(&good[index]);
      bad_group.push_back(&bad[index]);
    }
    double best_score = 0;
    for (int64_t candidate = 0; candidate < options_.n_ei_candidates; ++candidate) {
      size_t kernel = good_group.front()->pick_kernel(random);
      std::vector<nlohmann::json> drawn;
      for (const auto* estimate : good_group) drawn.push_back(estimate->draw(kernel, random));
      double score = log_joint_density(good_group, drawn) - log_joint_density(bad_group, drawn);
      if (candidate > 0 && score <= best_score) continue;
      best_score = score;
      for (size_t i = 0; i < group.size(); ++i) values[group[i]] = drawn[i];
    }
  }

  Space space_;
  uint64_t seed_;
  TpeOptions options_;
  std::map<int64_t, Ended> ended_;
  std::map<int64_t, nlohmann::json> running_;
};

}  // namespace

std::unique_ptr<Method> make_tpe(const Space& space, uint64_t seed, const TpeOptions& options) {
  return std::make_unique<Tpe>(space, seed, options);
}

}  // namespace runner::sweep
