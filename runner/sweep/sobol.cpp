// Sobol's sequence, scrambled.
#include <array>

#include "runner/base/error.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/random_bits.hpp"

namespace runner::sweep {

namespace {

constexpr int bits = 32;

/// Degree and coefficients of a primitive polynomial, and the first direction numbers: dimensions 2 to 64 of
/// new-joe-kuo-6.
struct Direction {
  int degree;
  uint32_t coefficients;
  std::array<uint32_t, 9> first;
};
constexpr Direction directions[] = {{1, 0, {1}},
                                    {2, 1, {1, 3}},
                                    {3, 1, {1, 3, 1}},
                                    {3, 2, {1, 1, 1}},
                                    {4, 1, {1, 1, 3, 3}},
                                    {4, 4, {1, 3, 5, 13}},
                                    {5, 2, {1, 1, 5, 5, 17}},
                                    {5, 4, {1, 1, 5, 5, 5}},
                                    {5, 7, {1, 1, 7, 11, 19}},
                                    {5, 11, {1, 1, 5, 1, 1}},
                                    {5, 13, {1, 1, 1, 3, 11}},
                                    {5, 14, {1, 3, 5, 5, 31}},
                                    {6, 1, {1, 3, 3, 9, 7, 49}},
                                    {6, 13, {1, 1, 1, 15, 21, 21}},
                                    {6, 16, {1, 3, 1, 13, 27, 49}},
                                    {6, 19, {1, 1, 1, 15, 7, 5}},
                                    {6, 22, {1, 3, 1, 15, 13, 25}},
                                    {6, 25, {1, 1, 5, 5, 19, 61}},
                                    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
                                    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
                                    {7, 7, {1, 1, 3, 13, 7, 35, 63}},
                                    {7, 8, {1, 3, 5, 9, 1, 25, 53}},
                                    {7, 14, {1, 3, 1, 13, 9, 35, 107}},
                                    {7, 19, {1, 3, 1, 5, 27, 61, 31}},
                                    {7, 21, {1, 1, 5, 11, 19, 41, 61}},
                                    {7, 28, {1, 3, 5, 3, 3, 13, 69}},
                                    {7, 31, {1, 1, 7, 13, 1, 19, 1}},
                                    {7, 32, {1, 3, 7, 5, 13, 19, 59}},
                                    {7, 37, {1, 1, 3, 9, 25, 29, 41}},
                                    {7, 41, {1, 3, 5, 13, 23, 1, 55}},
                                    {7, 42, {1, 3, 7, 3, 13, 59, 17}},
                                    {7, 50, {1, 3, 1, 3, 5, 53, 69}},
                                    {7, 55, {1, 1, 5, 5, 23, 33, 13}},
                                    {7, 56, {1, 1, 7, 7, 1, 61, 123}},
                                    {7, 59, {1, 1, 7, 9, 13, 61, 49}},
                                    {7, 62, {1, 3, 3, 5, 3, 55, 33}},
                                    {8, 14, {1, 3, 1, 15, 31, 13, 49, 245}},
                                    {8, 21, {1, 3, 5, 15, 31, 59, 63, 97}},
                                    {8, 22, {1, 3, 1, 11, 11, 11, 77, 249}},
                                    {8, 38, {1, 3, 1, 11, 27, 43, 71, 9}},
                                    {8, 47, {1, 1, 7, 15, 21, 11, 81, 45}},
                                    {8, 49, {1, 3, 7, 3, 25, 31, 65, 79}},
                                    {8, 50, {1, 3, 1, 1, 19, 11, 3, 205}},
                                    {8, 52, {1, 1, 5, 9, 19, 21, 29, 157}},
                                    {8, 56, {1, 3, 7, 11, 1, 33, 89, 185}},
                                    {8, 67, {1, 3, 3, 3, 15, 9, 79, 71}},
                                    {8, 70, {1, 3, 7, 11, 15, 39, 119, 27}},
                                    {8, 84, {1, 1, 3, 1, 11, 31, 97, 225}},
                                    {8, 97, {1, 1, 1, 3, 23, 43, 57, 177}},
                                    {8, 103, {1, 3, 7, 7, 17, 17, 37, 71}},
                                    {8, 115, {1, 3, 1, 5, 27, 63, 123, 213}},
                                    {8, 122, {1, 1, 3, 5, 11, 43, 53, 133}},
                                    {9, 8, {1, 3, 5, 5, 29, 17, 47, 173, 479}},
                                    {9, 13, {1, 3, 3, 11, 3, 1, 109, 9, 69}},
                                    {9, 16, {1, 1, 1, 5, 17, 39, 23, 5, 343}},
                                    {9, 22, {1, 3, 1, 5, 25, 15, 31, 103, 499}},
                                    {9, 25, {1, 1, 1, 11, 11, 17, 63, 105, 183}},
                                    {9, 44, {1, 1, 5, 11, 9, 29, 97, 231, 363}},
                                    {9, 47, {1, 1, 5, 15, 19, 45, 41, 7, 383}},
                                    {9, 52, {1, 3, 7, 7, 31, 19, 83, 137, 221}},
                                    {9, 55, {1, 1, 1, 3, 23, 15, 111, 223, 83}},
                                    {9, 59, {1, 1, 5, 13, 31, 15, 55, 25, 161}},
                                    {9, 62, {1, 1, 3, 13, 25, 47, 39, 87, 257}}};
constexpr size_t dimensions_max = 1 + std::size(directions);

std::array<uint32_t, bits> direction_numbers(size_t dimension) {
  std::array<uint32_t, bits> v{};
  if (dimension == 0) {
    for (int i = 0; i < bits; ++i) v[static_cast<size_t>(i)] = 1u << (bits - 1 - i);
    return v;
  }
  const Direction& direction = directions[dimension - 1];
  const auto degree = static_cast<size_t>(direction.degree);
  for (size_t i = 0; i < bits; ++i) {
    if (i < degree) {
      v[i] = direction.first[i] << (bits - 1 - i);
      continue;
    }
    v[i] = v[i - degree] ^ (v[i - degree] >> degree);
    for (size_t k = 1; k < degree; ++k)
      if ((direction.coefficients >> (degree - 1 - k)) & 1) v[i] ^= v[i - k];
  }
  return v;
}

uint32_t reversed(uint32_t x) {
  x = (x >> 16) | (x << 16);
  x = ((x & 0x00ff00ffu) << 8) | ((x >> 8) & 0x00ff00ffu);
  x = ((x & 0x0f0f0f0fu) << 4) | ((x >> 4) & 0x0f0f0f0fu);
  x = ((x & 0x33333333u) << 2) | ((x >> 2) & 0x33333333u);
  return ((x & 0x55555555u) << 1) | ((x >> 1) & 0x55555555u);
}

/// A permutation in which each bit depends on lower bits only (Laine and Karras, as given by Burley). On reversed bits
/// this is a nested uniform scramble.
uint32_t scrambled(uint32_t x, uint32_t seed) {
  x = reversed(x) + seed;
  for (uint32_t factor : {0x6c50b47cu, 0xb82f1e52u, 0xc7afe638u, 0x8d22f6e6u}) x ^= x * factor;
  return reversed(x);
}

class Sobol : public Method {
 public:
  Sobol(const Space& space, uint64_t seed, bool scramble) : space_(space), seed_(seed), scramble_(scramble) {
    if (space.parameters().size() > dimensions_max)
      throw usage_error("sobol has {} dimensions, and the space has {} parameters: take random", dimensions_max,
                        space.parameters().size());
    for (size_t d = 0; d < space.parameters().size(); ++d) directions_.push_back(direction_numbers(d));
  }

  /// The next point of the sequence that the constraints accept.
  Proposal propose(int64_t number) override {
    for (int draw = 0; draw < Space::draws_max; ++draw) {
      uint32_t index = next_++;
      auto point =
          space_.point([&](size_t d, const Parameter& parameter) { return parameter.at(coordinate(index, d)); });
      if (space_.accepts(point)) return Proposal::of({number, std::move(point)});
    }
    space_.nothing_left(Space::draws_max);
  }
  void finished(const Trial&, const Ending&) override {}

 private:
  double coordinate(uint32_t index, size_t dimension) const {
    uint32_t gray = index ^ (index >> 1), x = 0;
    for (size_t i = 0; gray != 0; ++i, gray >>= 1)
      if (gray & 1) x ^= directions_[dimension][i];
    if (scramble_) x = scrambled(x, static_cast<uint32_t>(mix64(mix64(seed_) ^ dimension)));
    return x * 0x1p-32;
  }

  Space space_;
  uint64_t seed_;
  bool scramble_;
  std::vector<std::array<uint32_t, bits>> directions_;
  uint32_t next_ = 0;
};

}  // namespace

std::unique_ptr<Method> make_sobol(const Space& space, uint64_t seed, bool scramble) {
  return std::make_unique<Sobol>(space, seed, scramble);
}

}  // namespace runner::sweep
