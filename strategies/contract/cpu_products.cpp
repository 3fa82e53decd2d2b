#include "strategies/contract/cpu_products.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "runner/base/round_up.hpp"

namespace runner {

namespace {

/// Alignment of each part of oneDNN's scratch memory, in bytes.
constexpr int64_t alignment = 128;

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
bool is_power_of_2(int64_t value) { return std::has_single_bit(static_cast<uint64_t>(value)); }

int64_t result_bytes(const ProductShape& shape) { return 4 * shape.rows * shape.columns + alignment; }

/// The choice of block sizes of oneDNN's blocked kernels. Names are those of the oneDNN source.
class Blocking {
 public:
  Blocking(DType dtype, int threads, const ProductShape& shape)
      : shape_(shape), threads_(threads), bfloat16_(dtype == DType::bfloat16), element_(bfloat16_ ? 2 : 4) {
    int64_t big_stride = 8192 / bytes_of(dtype);
    bool prefers_copy = bfloat16_ && is_power_of_2(shape.inner) && shape.inner >= big_stride && shape.rows >= 1024;
    copies_first_ = shape.transposed || prefers_copy || !bfloat16_;
    k_blk_ = std::min<int64_t>(shape.inner, shape.inner > 1024 && !shape.transposed ? 1024 : 512);
    n_blk_ = std::min(columns_most, shape.columns);
    choose();
  }

  /// False if the kernels do not support the shape.
  bool found() const { return best_imbalance_ < 1; }

  int64_t bytes() const {
    int64_t batch = 16 * 40 * threads_ + alignment;  // descriptors
    int64_t second = element_ * columns_most * round_up(k_blk_, bfloat16_ ? 32 : 16);
    int64_t first = copies_first_ ? threads_ * element_ * m_blk_ * stride_of_first() + alignment : 0;
    return batch + first + threads_ * second + alignment + threads_ * sums() + alignment;
  }

 private:
  void choose() {
    int64_t most = std::min<int64_t>(256, shape_.rows), least = std::min<int64_t>(32, shape_.rows);
    int64_t n_chunks = divide_up(shape_.columns, n_blk_), nthr_k = 1;
    if (threads_ > n_chunks) {
      least = std::min<int64_t>(16, shape_.rows);
      bool cuts_inner = shape_.transposed && (!bfloat16_ || is_power_of_2(shape_.inner)) && shape_.inner >= 2048;
      if (cuts_inner) nthr_k = std::min(threads_, 4);
    }
    int64_t chunks = std::min<int64_t>(copies_first_ ? 16 : 1, n_chunks);
    bool may_cut_inner = nthr_k > 1;
    for (; nthr_k >= 1; --nthr_k) {
      bool better = false;
      for (int64_t chunk = chunks; chunk >= 1; --chunk)
        for (int64_t m_blk = most; m_blk >= least; --m_blk) {
          int64_t work = parallel_work(m_blk, chunk), threads = threads_ / nthr_k;
          if (!may_cut_inner && work < threads * 3 && work % threads != 0) continue;
          better = consider(m_blk, chunk, nthr_k) || better;
        }
      if (!better) consider(least, 1, nthr_k);
    }
  }

  bool consider(int64_t m_blk, int64_t chunk, int64_t nthr_k) {
    float imbalance = imbalance_of(m_blk, chunk, nthr_k);
    if (!(imbalance < best_imbalance_)) return false;
    best_imbalance_ = imbalance;
    m_blk_ = m_blk;
    n_chunk_ = chunk;
    nthr_k_ = nthr_k;
    return true;
  }

  int64_t parallel_work(int64_t m_blk, int64_t chunk) const {
    return divide_up(shape_.rows, m_blk) * divide_up(shape_.columns, n_blk_ * chunk);
  }

  static float share_left(int64_t work, int64_t block) {
    int64_t rest = work % block, count = work < block ? block - rest : std::min(block - rest, rest);
    return static_cast<float>(count) / static_cast<float>(block);
  }

  float imbalance_of(int64_t m_blk, int64_t chunk, int64_t nthr_k) const {
    int64_t threads = threads_ / nthr_k, n_blocks = divide_up(shape_.columns, n_blk_);
    auto ratio = [](int64_t a, int64_t b) { return static_cast<float>(a) / static_cast<float>(b); };
    float work = share_left(parallel_work(m_blk, chunk), threads);
    float rows = ratio(round_up(shape_.rows, m_blk) % shape_.rows, shape_.rows);
    float columns = ratio(round_up(n_blocks, chunk) - n_blocks, n_blocks);
    float idle = ratio(threads_ - threads * nthr_k, threads_);
    float inner = share_left(shape_.inner, nthr_k * k_blk_);
    return (work + rows + columns + idle + inner) / 5;
  }

  int64_t stride_of_first() const {
    int64_t line = 64 / element_, stride = round_up(k_blk_, line);
    return stride >= 512 && is_power_of_2(stride) ? stride + line : stride;
  }

  /// Bytes of the result that one thread computes.
  int64_t sums() const {
    if (nthr_k_ > 1) return 4 * shape_.rows * shape_.columns;
    return 4 * n_blk_ * m_blk_ * (k_blk_ >= shape_.inner ? 1 : n_chunk_);
  }

  ProductShape shape_;
  int threads_;
  bool bfloat16_, copies_first_ = false;
  static constexpr int64_t columns_most = 64;
  int64_t element_;  ///< bytes of an element that the kernels read: they convert fp16 to fp32 first
  int64_t k_blk_ = 1, n_blk_ = 1, m_blk_ = 1, n_chunk_ = 1, nthr_k_ = 1;
  float best_imbalance_ = 1;
};

}  // namespace

CpuProducts cpu_products(const std::string& isa) {
  using enum ProductScratch;
  struct Row {
    std::string_view isa;
    ProductScratch bfloat16, float16;
  };
  // The kernels for matrix units (amx) choose blocks by other rules. According to the source they need about the same bytes; this
  // is not measured.
  static constexpr std::array<Row, 9> rows{{{"avx2_vnni_2", blocks, blocks},
                                            {"avx512_core", result, none},
                                            {"avx512_core_vnni", result, none},
                                            {"avx512_core_bf16", blocks, none},
                                            {"avx512_core_fp16", blocks, blocks},
                                            {"avx512_core_amx", blocks, blocks},
                                            {"avx512_core_amx_fp16", blocks, blocks},
                                            {"avx10_2_512", blocks, blocks},
                                            {"avx10_2_512_amx_2", blocks, blocks}}};
  auto* row = std::find_if(rows.begin(), rows.end(), [&](const Row& known) { return known.isa == isa; });
  return row == rows.end()
             ? CpuProducts{}
             : CpuProducts{.bfloat16 = row->bfloat16, .float16 = row->float16, .avx512 = isa != "avx2_vnni_2"};
}

int64_t scratch_bytes(const CpuProducts& products, DType dtype, const ProductShape& shape) {
  constexpr int64_t smallest = 16 * 16 * 16;  // LibTorch computes products up to this size itself
  if (shape.rows * shape.columns * shape.inner <= smallest) return 0;
  auto scratch = dtype == DType::bfloat16  ? products.bfloat16
                 : dtype == DType::float16 ? products.float16
                                           : ProductScratch::none;
  if (scratch == ProductScratch::none) return 0;
  if (scratch == ProductScratch::result) return result_bytes(shape);
  Blocking blocking(dtype, products.threads, shape);
  return blocking.found() ? blocking.bytes() : result_bytes(shape);
}

}  // namespace runner
