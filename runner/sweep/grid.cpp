// The grid method: every combination of values, made one after the other.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/sweep/methods.hpp"

namespace runner::sweep {

namespace {

constexpr int64_t combinations_max = 1'000'000, looked_at_max = 10'000'000;

/// The values of one parameter.
class GridAxis {
 public:
  explicit GridAxis(const Parameter& parameter) : parameter_(parameter), whole_(parameter.whole_grid()) {
    if (whole_ == 0) list_ = parameter.grid();
  }
  int64_t size() const { return whole_ > 0 ? whole_ : std::ssize(list_); }
  nlohmann::json value(int64_t i) const {
    return whole_ > 0 ? parameter_.whole_grid_value(i) : list_[static_cast<size_t>(i)];
  }

 private:
  Parameter parameter_;
  int64_t whole_;
  std::vector<nlohmann::json> list_;
};

/// Goes through the combinations; the last parameter changes fastest.
class GridWalk {
 public:
  explicit GridWalk(const Space& space) : space_(space), places_(space.parameters().size(), 0) {
    for (const auto& parameter : space.parameters()) axes_.emplace_back(parameter);
  }

  /// The next combination that the constraints accept; null: there is none.
  nlohmann::json next() {
    while (!ended_) {
      if (++looked_at_ > looked_at_max)
        throw usage_error(
            "the constraints leave few of more than {} combinations of the grid: give ranges fewer points",
            looked_at_max);
      std::vector<bool> active(axes_.size(), false);
      auto point = space_.point([&](size_t index, const Parameter&) {
        active[index] = true;
        return axes_[index].value(places_[index]);
      });
      advance(active);
      if (space_.accepts(point)) {
        looked_at_ = 0;
        return point;
      }
    }
    return nullptr;
  }

 private:
  void advance(const std::vector<bool>& active) {
    for (size_t i = axes_.size(); i-- > 0;) {
      if (active[i] && ++places_[i] < axes_[i].size()) return;
      places_[i] = 0;
    }
    ended_ = true;
  }

  Space space_;
  std::vector<GridAxis> axes_;
  std::vector<int64_t> places_;  ///< of each parameter: the value of the next combination
  int64_t looked_at_ = 0;        ///< since the last one that was accepted
  bool ended_ = false;
};

class Grid : public Method {
 public:
  explicit Grid(const Space& space) : space_(space), walk_(space) {}

  Proposal propose(int64_t number) override {
    if (number + 1 < next_) {
      walk_ = GridWalk(space_);
      next_ = 0;
    }
    for (; next_ <= number; ++next_) point_ = walk_.next();
    return point_.is_null() ? Proposal() : Proposal::of({number, point_});
  }
  void finished(const Trial&, const Ending&) override {}

  std::optional<int64_t> count(std::optional<int64_t> most) const override {
    const bool all = space_.constraints().empty() &&
                     std::ranges::all_of(space_.parameters(), [](const Parameter& one) { return one.parent.empty(); });
    const int64_t limit = most.value_or(combinations_max + 1);
    int64_t combinations = all ? 1 : 0;
    if (all)
      for (const auto& parameter : space_.parameters()) {
        const int64_t values = GridAxis(parameter).size();
        combinations = combinations > limit / values ? limit : combinations * values;
      }
    for (GridWalk walk(space_); !all && combinations < limit && !walk.next().is_null();) ++combinations;
    if (!most && combinations > combinations_max)
      throw usage_error("the grid has more than {} combinations: give ranges fewer points, or set budget.trials",
                        combinations_max);
    return std::min(combinations, limit);
  }

 private:
  Space space_;
  GridWalk walk_;
  int64_t next_ = 0;  ///< number of the trial after point_
  nlohmann::json point_;
};

}  // namespace

std::unique_ptr<Method> make_grid(const Space& space) { return std::make_unique<Grid>(space); }

}  // namespace runner::sweep
