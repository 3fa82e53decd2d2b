// quantization_pertensor_hook and quantization_perchannel_hook: each rank sends a byte for each gradient, and sums what it gets.
//
// A row of x becomes bytes: lo = min(x, 0), hi = max(x, 0), s = (hi - lo) / 255, z = -round(lo / s), q = round(x / s) + z, and back
// x = s (q - z). In PyTorch s is at least 2^-23. That is too coarse here, where a gradient is a part of the mean over all ranks. Source:
// quantization_hooks.py, and MinMaxObserver in torch/ao/quantization/observer.py.
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/reducers/quantization_plan.hpp"

namespace runner {

namespace {

/// A bucket as bytes: the rows' scales (float32), their zero points (float32), and the codes.
class Codec {
 public:
  /// `row` = 0: the bucket is one row.
  Codec(int64_t elements, int64_t row)
      : elements_(elements), row_(row > 0 ? row : elements), rows_((elements + row_ - 1) / row_) {}

  int64_t bytes() const { return quantized_message_bytes(elements_, row_); }

  /// Values that are not finite stay so.
  torch::Tensor encode(const torch::Tensor& values) const {
    const auto x = in_rows(values.to(torch::kFloat32));
    const auto [low, high] = torch::aminmax(x, 1);
    const auto lo = low.clamp_max(0), hi = high.clamp_min(0);
    const auto scale = ((hi - lo) / 255).clamp_min(std::numeric_limits<float>::min());
    const auto zero = (-torch::round(lo / scale)).clamp(0, 255);
    auto codes = x.is_alias_of(values) ? x / scale.unsqueeze(1) : x.div_(scale.unsqueeze(1));
    codes.round_().add_(zero.unsqueeze(1)).clamp_(0, 255).nan_to_num_(0);
    auto message = torch::empty({bytes()}, values.options().dtype(torch::kUInt8));
    message.narrow(0, 0, rows_ * 4).copy_(bytes_of_floats(scale));
    message.narrow(0, rows_ * 4, rows_ * 4).copy_(bytes_of_floats(zero));
    message.narrow(0, rows_ * quantized_row_header, elements_).copy_(codes.reshape({-1}).narrow(0, 0, elements_));
    return message;
  }

  torch::Tensor decode(const torch::Tensor& message) const {
    const auto scale = floats(message, 0), zero = floats(message, rows_);
    auto codes = torch::zeros({rows_, row_}, message.options().dtype(torch::kFloat32));
    codes.view({-1}).narrow(0, 0, elements_).copy_(message.narrow(0, rows_ * quantized_row_header, elements_));
    codes.sub_(zero.unsqueeze(1)).mul_(scale.unsqueeze(1));
    return codes.reshape({-1}).narrow(0, 0, elements_);
  }

 private:
  /// [rows, row]. The last row ends with zeros, which change neither its minimum nor its maximum.
  torch::Tensor in_rows(const torch::Tensor& values) const {
    const int64_t missing = rows_ * row_ - elements_;
    const auto whole = missing == 0 ? values : torch::cat({values, torch::zeros({missing}, values.options())});
    return whole.view({rows_, row_});
  }
  static torch::Tensor bytes_of_floats(const torch::Tensor& numbers) {
    return numbers.to(torch::kFloat32).contiguous().view(torch::kUInt8);
  }
  torch::Tensor floats(const torch::Tensor& message, int64_t first) const {
    return message.narrow(0, first * 4, rows_ * 4).clone().view(torch::kFloat32);
  }

  int64_t elements_, row_, rows_;
};

class Quantization : public BaseReducer {
 public:
  Quantization(World& world, const ReducerPlan& plan, int64_t row) : BaseReducer(world, plan), row_(row) {}

 protected:
  void prepared() override { exchanges_.resize(buckets_.size()); }

  void start(size_t bucket, torch::Tensor& values) override {
    auto& exchange = exchanges_[bucket];
    exchange.own = Codec(values.numel(), row_).encode(values);
    exchange.all = torch::empty({world_.size * exchange.own.numel()}, exchange.own.options());
    if (world_.size > 1)
      exchange.work = world_.group->_allgather_base(exchange.all, exchange.own);
    else
      exchange.all.copy_(exchange.own);
  }

  /// Adds the ranks' values in their order, so that all ranks have the same bits.
  void complete(size_t bucket, torch::Tensor& values) override {
    auto exchange = std::exchange(exchanges_[bucket], {});
    wait(exchange.work);
    const Codec codec(values.numel(), row_);
    const auto messages = exchange.all.view({world_.size, codec.bytes()});
    auto sum = codec.decode(messages[0]);
    for (int rank = 1; rank < world_.size; ++rank) sum.add_(codec.decode(messages[rank]));
    values.copy_(sum);
  }

 private:
  struct Exchange {
    torch::Tensor own, all;
    Work work;
  };
  int64_t row_;
  std::vector<Exchange> exchanges_;
};

}  // namespace

std::shared_ptr<Reducer> make_quantization(World& world, const ReducerPlan& plan, int64_t row) {
  return std::make_shared<Quantization>(world, plan, row);
}

}  // namespace runner
