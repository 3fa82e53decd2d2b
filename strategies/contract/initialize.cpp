#include "strategies/contract/initialize.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "strategies/contract/quantized_source.hpp"

namespace runner {

uint64_t name_key(int64_t seed, const std::string& name) {
  return mix64(fnv1a(name) ^ mix64(static_cast<uint64_t>(seed)));
}

namespace {

// Logarithm, sine and cosine are polynomials (those of Cephes in single precision, about 1 ulp) in plain IEEE
// operations. So the compiler can vectorise them, and the weights do not depend on the machine or the C library.

/// Natural logarithm of a normal float above 0.
inline float log_of(float x) {
  constexpr int32_t sqrt_half = 0x3f3504f3;
  int32_t shifted = std::bit_cast<int32_t>(x) - sqrt_half;
  auto exponent = static_cast<float>(shifted >> 23);
  float f = std::bit_cast<float>((shifted & 0x7fffff) + sqrt_half) - 1.0f;  // mantissa in [sqrt(1/2), sqrt(2)), minus 1
  float z = f * f;
  float y = 7.0376836292e-2f * f - 1.1514610310e-1f;
  y = y * f + 1.1676998740e-1f;
  y = y * f - 1.2420140846e-1f;
  y = y * f + 1.4249322787e-1f;
  y = y * f - 1.6668057665e-1f;
  y = y * f + 2.0000714765e-1f;
  y = y * f - 2.4999993993e-1f;
  y = y * f + 3.3333331174e-1f;
  return f + (y * f * z - 2.12194440e-4f * exponent - 0.5f * z) + 0.693359375f * exponent;
}

struct Direction {
  float cosine, sine;
};
/// Cosine and sine of the angle 2 pi `turn`, for turn in [0, 1].
inline Direction direction_of(float turn) {
  auto quarter = static_cast<int32_t>(turn * 4.0f + 0.5f);
  float r = (turn * 4.0f - static_cast<float>(quarter)) * (std::numbers::pi_v<float> / 2);
  float z = r * r;
  float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  float x = quarter & 1 ? sine : cosine, y = quarter & 1 ? cosine : sine;
  return {(quarter + 1) & 2 ? -x : x, quarter & 2 ? -y : y};
}

constexpr size_t pairs_at_once = 256;

/// Normal deviates of pairs [first, first + pairs_at_once), two consecutive ones for each pair (Box and Muller 1958).
void draw_pairs(uint64_t key, uint64_t first, float* out) {
  float u[pairs_at_once], v[pairs_at_once];
  for (size_t i = 0; i < pairs_at_once; ++i) {
    uint64_t bits = mix64(key + (first + i) * 0x9e3779b97f4a7c15ull);
    // 24 bits each, plus one half, so u is never 0 and its logarithm is finite.
    u[i] = (static_cast<float>(static_cast<int32_t>(bits >> 40)) + 0.5f) * 0x1p-24f;
    v[i] = (static_cast<float>(static_cast<int32_t>((bits >> 8) & 0xffffff)) + 0.5f) * 0x1p-24f;
  }
  for (size_t i = 0; i < pairs_at_once; ++i) {
    float radius = std::sqrt(-2.0f * log_of(u[i]));
    auto [cosine, sine] = direction_of(v[i]);
    out[2 * i] = radius * cosine;
    out[2 * i + 1] = radius * sine;
  }
}

/// Uniform between -bound and bound.
void draw_uniform(uint64_t key, int64_t offset, float bound, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mix64(key + (static_cast<uint64_t>(offset) + i) * 0x9e3779b97f4a7c15ull);
    out[i] = (static_cast<float>(static_cast<int32_t>(bits >> 40)) * 0x1p-23f - 1) * bound;
  }
}

}  // namespace

void initialize_slice(const ParameterSpec& parameter, int64_t seed, int64_t offset, std::span<float> out) {
  RUNNER_CHECK(parameter.init.kind != Init::Kind::row_norms, "`{}` needs the values of another parameter",
               parameter.name);
  if (parameter.init.kind == Init::Kind::uniform)
    return draw_uniform(name_key(seed, parameter.name), offset, static_cast<float>(parameter.init.std), out);
  if (parameter.init.kind != Init::Kind::normal) {
    std::fill(out.begin(), out.end(), parameter.init.kind == Init::Kind::ones ? 1.0f : 0.0f);
    return;
  }
  uint64_t key = name_key(seed, parameter.name);
  auto std_deviation = static_cast<float>(parameter.init.std);
  float drawn[2 * pairs_at_once];
  for (size_t done = 0; done < out.size();) {
    uint64_t element = static_cast<uint64_t>(offset) + done;
    draw_pairs(key, element / 2, drawn);
    size_t skipped = element % 2, count = std::min(out.size() - done, 2 * pairs_at_once - skipped);
    for (size_t i = 0; i < count; ++i) out[done + i] = drawn[skipped + i] * std_deviation;
    done += count;
  }
}

namespace {

void read_row_norms(const ParameterSource& source, size_t matrix, int64_t columns, int64_t row, std::span<float> out) {
  constexpr int64_t elements_at_once = 1 << 18;
  const int64_t at_once = std::max<int64_t>(1, elements_at_once / columns);
  std::vector<float> values;
  for (int64_t done = 0; done < std::ssize(out); done += at_once) {
    const int64_t rows = std::min(at_once, std::ssize(out) - done);
    values.resize(static_cast<size_t>(rows * columns));
    source(matrix, (row + done) * columns, values);
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (float value : std::span(values).subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns)))
        squares += static_cast<double>(value) * value;
      out[static_cast<size_t>(done + r)] = static_cast<float>(std::sqrt(squares));
    }
  }
}

}  // namespace

ParameterSource with_row_norms(const ModelSpec& model, ParameterSource source) {
  struct Matrix {
    size_t slot;
    int64_t columns;
  };
  std::map<size_t, Matrix> matrices;  // by the slot of the norms
  const auto parameters = model.parameters();
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    if (parameters[slot]->init.kind != Init::Kind::row_norms) continue;
    const size_t matrix = model.slot(parameters[slot]->init.of);
    matrices[slot] = {matrix, parameters[matrix]->shape.back()};
  }
  if (matrices.empty()) return source;
  return [=, values = dequantized_source(model, source), source = std::move(source)](size_t slot, int64_t offset,
                                                                                     std::span<float> out) {
    const auto found = matrices.find(slot);
    if (found == matrices.end()) return source(slot, offset, out);
    read_row_norms(values, found->second.slot, found->second.columns, offset, out);
  };
}

}  // namespace runner
