// Independent draws: trial k's are a function of (seed, k).
#include "runner/sweep/methods.hpp"
#include "runner/sweep/random_bits.hpp"

namespace runner::sweep {

namespace {

class Random : public Method {
 public:
  Random(const Space& space, uint64_t seed) : space_(space), seed_(seed) {}

  Proposal propose(int64_t number) override {
    return Proposal::of({number, random_point(space_, seed_, static_cast<uint64_t>(number))});
  }
  void finished(const Trial&, const Ending&) override {}

 private:
  Space space_;
  uint64_t seed_;
};

}  // namespace

nlohmann::json random_point(const Space& space, uint64_t seed, uint64_t stream) {
  RandomBits random(seed, stream);
  for (int draw = 0; draw < Space::draws_max; ++draw) {
    auto point = space.point([&](size_t, const Parameter& parameter) { return parameter.at(random.uniform()); });
    if (space.accepts(point)) return point;
  }
  space.nothing_left(Space::draws_max);
}

std::unique_ptr<Method> make_random(const Space& space, uint64_t seed) { return std::make_unique<Random>(space, seed); }

}  // namespace runner::sweep
