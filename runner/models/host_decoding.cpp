#include "runner/models/host_decoding.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "runner/base/bfloat16.hpp"
#include "runner/models/decode_loops.hpp"
#include "runner/models/key_value_cache.hpp"

namespace runner {

using torch::Tensor;

namespace {

constexpr auto bf16 = torch::kBFloat16;

float* floats(const Tensor& x) { return x.data_ptr<float>(); }
uint16_t* halves(const Tensor& x) { return reinterpret_cast<uint16_t*>(x.data_ptr<at::BFloat16>()); }

/// A buffer of this thread, which is kept.
template <int number>
float* scratch(int64_t count) {
  static thread_local std::vector<float> buffer;
  if (std::ssize(buffer) < count) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

void read_row(const Tensor& x, int64_t offset, int64_t count, float* to) {
  if (x.scalar_type() == bf16) return widen_bfloat16(halves(x) + offset, to, count);
  std::copy_n(floats(x) + offset, count, to);
}
void write_row(const Tensor& x, int64_t offset, int64_t count, const float* from) {
  if (x.scalar_type() == bf16) return narrow_bfloat16(from, halves(x) + offset, count);
  std::copy_n(from, count, floats(x) + offset);
}

/// Work for one thread: weights that are read in about 10 microseconds.
int64_t least_rows(int64_t in) { return std::max<int64_t>(1, 65536 / in); }

void multiply(const Tensor& weight, const float* x, float* y, int64_t rows) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const bool narrow = weight.scalar_type() == bf16;
  at::parallel_for(0, out, least_rows(in), [&](int64_t begin, int64_t end) {
    if (narrow)
      product_of_rows(halves(weight), x, y, rows, in, out, begin, end);
    else
      product_of_rows(floats(weight), x, y, rows, in, out, begin, end);
  });
}

void add_bias(float* y, const Tensor& bias, int64_t rows, int64_t out) {
  float* wide = scratch<2>(out);
  read_row(bias, 0, out, wide);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < out; ++i) y[row * out + i] += wide[i];
}

}  // namespace

bool decodes_on_host(const Tensor& x) {
  return c10::InferenceMode::is_enabled() && x.is_cpu() &&
         (x.scalar_type() == torch::kFloat32 || x.scalar_type() == bf16);
}

bool few_rows(const Tensor& x, const Tensor& weight) {
  return x.size(0) <= product_rows_max && x.scalar_type() == weight.scalar_type() && x.is_contiguous() &&
         weight.is_contiguous();
}

Tensor few_rows_product(const Tensor& x, const Tensor& weight, const Tensor& bias, torch::ScalarType dtype) {
  const int64_t rows = x.size(0), in = weight.size(1), out = weight.size(0);
  const float* input = nullptr;
  if (x.scalar_type() == bf16) {
    float *wide = scratch<0>(in), *arranged = scratch<1>(rows * in);
    for (int64_t row = 0; row < rows; ++row) {
      read_row(x, row * in, in, wide);
      arrange_for_bfloat16(wide, arranged + row * in, in);
    }
    input = arranged;
  } else {
    input = floats(x);
  }
  auto result = at::empty({rows, out}, x.options().dtype(dtype));
  float* sums = dtype == torch::kFloat32 ? floats(result) : scratch<3>(rows * out);
  multiply(weight, input, sums, rows);
  if (bias.defined()) add_bias(sums, bias, rows, out);
  if (dtype != torch::kFloat32) write_row(result, 0, rows * out, sums);
  return result;
}

Tensor host_rms_norm(const Tensor& x, const Tensor& weight, double eps, bool minus_one) {
  const int64_t columns = x.size(-1), rows = x.numel() / columns;
  const auto from = x.contiguous();
  auto result = at::empty_like(from);
  std::vector<float> factor(static_cast<size_t>(columns)), ones(static_cast<size_t>(columns), 1.0f);
  read_row(weight.contiguous(), 0, columns, factor.data());
  if (minus_one)
    for (float& value : factor) value += 1;
  const bool rounds = x.scalar_type() == bf16 && !minus_one;
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / columns), [&](int64_t begin, int64_t end) {
    float* row = scratch<0>(columns);
    for (int64_t r = begin; r < end; ++r) {
      read_row(from, r * columns, columns, row);
      const float scale = rms_scale(row, columns, static_cast<float>(eps));
      if (rounds) {
        scale_by(row, ones.data(), columns, scale);
        write_row(result, r * columns, columns, row);
        read_row(result, r * columns, columns, row);
        scale_by(row, factor.data(), columns, 1);
      } else {
        scale_by(row, factor.data(), columns, scale);
      }
      write_row(result, r * columns, columns, row);
    }
  });
  return result;
}

Tensor host_rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  const int64_t tokens = x.size(1), heads = x.size(2), dim = x.size(3), half = cos.size(-1);
  const auto from = x.stride(3) == 1 && x.stride(2) == dim ? x : x.contiguous();
  auto result = at::empty(x.sizes(), x.options());
  const int64_t* position = positions.defined() ? positions.data_ptr<int64_t>() : nullptr;
  at::parallel_for(0, x.size(0) * tokens, std::max<int64_t>(1, 8192 / (heads * dim)), [&](int64_t begin, int64_t end) {
    float *row = scratch<0>(dim), *to = scratch<1>(dim), *angles = scratch<2>(2 * half);
    for (int64_t token = begin; token < end; ++token) {
      const int64_t place = position ? position[token] : token % tokens;
      read_row(cos, place * half, half, angles);
      read_row(sin, place * half, half, angles + half);
      for (int64_t head = 0; head < heads; ++head) {
        read_row(from, token / tokens * from.stride(0) + token % tokens * from.stride(1) + head * dim, dim, row);
        rotate_row(row, angles, angles + half, half, to);
        std::copy(row + 2 * half, row + dim, to + 2 * half);
        write_row(result, (token * heads + head) * dim, dim, to);
      }
    }
  });
  return result;
}

namespace {

/// Computes the attention of one key head of one row.
template <class Element>
void decode_head(const Tensor& q, const Element* keys, const Element* values, int64_t count, const AttentionForm& form,
                 int64_t place, int64_t group, const Tensor& result) {
  const int64_t dim = q.size(3);
  const SeenKeys<Element> seen{.keys = keys,
                               .values = values,
                               .count = count,
                               .head_dim = dim,
                               .group = group,
                               .softcap = static_cast<float>(form.softcap)};
  float *queries = scratch<0>(group * dim), *out = scratch<1>(group * dim);
  read_row(q, place, group * dim, queries);
  const auto scale = static_cast<float>(form.scale_for(dim));
  for (int64_t i = 0; i < group * dim; ++i) queries[i] *= scale;
  attend(seen, queries, out, scratch<2>(attend_scratch(count, dim, group)));
  write_row(result, place, group * dim, out);
}

}  // namespace

Tensor decode_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const KeyValueCache& cache,
                        const AttentionForm& form) {
  const int64_t rows = q.size(0), heads = q.size(2), dim = q.size(3), key_heads = keys.size(1), columns = keys.size(2),
                group = heads / key_heads;
  const auto queries = q.contiguous();
  auto result = at::empty({rows, heads * dim}, q.options());
  const int64_t least = std::max<int64_t>(1, 32768 / (columns * group * dim));
  at::parallel_for(0, rows * key_heads, least, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / key_heads, head = i % key_heads;
      int64_t first = cache.padding(row);
      if (form.window > 0) first = std::max(first, columns - form.window);
      const int64_t place = row * keys.stride(0) + head * keys.stride(1) + first * dim;
      const int64_t query = (row * heads + head * group) * dim;
      if (q.scalar_type() == bf16)
        decode_head(queries, halves(keys) + place, halves(values) + place, columns - first, form, query, group, result);
      else
        decode_head(queries, floats(keys) + place, floats(values) + place, columns - first, form, query, group, result);
    }
  });
  return result;
}

}  // namespace runner
