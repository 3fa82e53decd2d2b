#include "runner/models/gelu_loops.hpp"

#include <bit>

#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

/// e^a for a <= 0, with an error of at most one ulp; 0 below the smallest normal number. Cody and Waite's reduction by
/// ln 2 in two parts.
inline float exp_of_negative(float a) {
  constexpr float round_to_integer = 0x1.8p23f;  // after adding it, the integer is in the low bits
  float shifted = a * 1.44269504f + round_to_integer;
  float n = shifted - round_to_integer;
  float r = (a - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.98756915e-4f;
  p = p * r + 1.39819995e-3f;
  p = p * r + 8.33345192e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666656e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  return a < -87.0f ? 0.0f : scaled;
}

/// Phi(-|x|) = e^{-x^2/2} t P(t) / 2 with t = 1 / (1 + 0.33 |x| / sqrt 2). P is the minimax polynomial with relative
/// error 9e-8 for |x| up to 14. Value and derivative share one exponential.
RUNNER_VECTOR_CLONES void exact_loop(float* __restrict x, float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i], magnitude = v < 0 ? -v : v;
    float e = exp_of_negative(-0.5f * v * v);
    float t = 1.0f / (magnitude * 0.233345238f + 1.0f);
    float p = -0.13546013804688536f;
    p = p * t + 0.46071815513173364f;
    p = p * t - 0.3519910045750621f;
    p = p * t + 0.4092918634863002f;
    p = p * t + 0.0467883557542099f;
    p = p * t + 0.20136049016672308f;
    p = p * t + 0.18293284369155183f;
    p = p * t + 0.18635941377534926f;
    float tail = 0.5f * e * t * p;
    float phi = v < 0 ? tail : 1.0f - tail;
    y[i] = v * phi;
    x[i] = phi + v * (e * 0.398942280f);
  }
}

/// x s with s = sigmoid(2 u) = (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3).
RUNNER_VECTOR_CLONES void tanh_loop(float* __restrict x, float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float v = x[i];
    float square = v * v < 1e4f ? v * v : 1e4f;  // above, s is 0 or 1
    float twice_u = v * (1.595769122f + 0.0713548163f * square);
    float e = exp_of_negative(twice_u < 0 ? twice_u : -twice_u);
    float larger = 1.0f / (1.0f + e), smaller = e * larger;
    float s = twice_u < 0 ? smaller : larger;
    y[i] = v * s;
    x[i] = s + v * (larger * smaller) * (1.595769122f + 0.2140644489f * square);
  }
}

}  // namespace

void gelu_with_derivative(float* x, float* y, int64_t count, Gelu form) {
  form == Gelu::exact ? exact_loop(x, y, count) : tanh_loop(x, y, count);
}

}  // namespace runner
