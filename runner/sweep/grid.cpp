// The grid method: every combination of values.
#include "runner/base/error.hpp"
#include "runner/sweep/methods.hpp"

namespace runner::sweep {

namespace {

constexpr size_t combinations_max = 1'000'000;

class Grid : public Method {
 public:
  explicit Grid(const Space& space) {
    std::vector<std::vector<nlohmann::json>> values;
    for (const auto& parameter : space.parameters()) values.push_back(parameter.grid());
    add(space, values, 0, nlohmann::json::object());
  }

  Proposal propose(int64_t number) override {
    if (number >= static_cast<int64_t>(points_.size())) return {};
    return Proposal::of({number, points_[static_cast<size_t>(number)]});
  }
  void finished(const Trial&, const Ending&) override {}
  std::optional<int64_t> count() const override { return static_cast<int64_t>(points_.size()); }

 private:
  void add(const Space& space, const std::vector<std::vector<nlohmann::json>>& values, size_t index,
           const nlohmann::json& point) {
    if (index == values.size()) {
      if (!space.accepts(point)) return;
      if (points_.size() == combinations_max)
        throw usage_error("the grid has more than {} combinations: give ranges fewer points", combinations_max);
      points_.push_back(point);
      return;
    }
    const auto& parameter = space.parameters()[index];
    if (!space.active(parameter, point)) return add(space, values, index + 1, point);
    for (const auto& value : values[index]) {
      auto more = point;
      more[parameter.name] = value;
      add(space, values, index + 1, more);
    }
  }

  std::vector<nlohmann::json> points_;
};

}  // namespace

std::unique_ptr<Method> make_grid(const Space& space) { return std::make_unique<Grid>(space); }

}  // namespace runner::sweep
