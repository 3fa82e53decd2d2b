// The tree-structured Parzen estimator.
#include <algorithm>
#include <cmath>
#include <map>

#include "runner/sweep/methods.hpp"
#include "runner/sweep/parzen.hpp"

namespace runner::sweep {

namespace {

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
