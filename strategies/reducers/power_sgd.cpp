// powerSGD_hook and batched_powerSGD_hook: the sum of each matrix of gradients is replaced by P Q^T, two factors of low rank.
//
// M_i is the matrix of rank i plus its error of the last step. P = sum over ranks of M_i Q, made orthogonal; Q = sum of M_i^T P. The sum
// of the M_i becomes P Q^T, and the error of rank i is M_i - P Q^T / ranks. So the errors add up to what the sum lacks. Source: Vogels et
// al., PowerSGD (NeurIPS 2019), algorithms 1 and 2; powerSGD_hook.py.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <fmt/format.h>

#include "strategies/contract/dtype.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/reducers/power_sgd_plan.hpp"

namespace runner {

namespace {

/// The numbers of numpy's RandomState(seed).randint(10^9), of which PyTorch takes its seeds.
class SeedSource {
 public:
  explicit SeedSource(int64_t seed, int64_t drawn) : engine_(static_cast<uint64_t>(seed)) {
    for (; drawn_ < drawn;) next();
  }
  uint64_t next() {
    ++drawn_;
    for (;;)
      if (const uint32_t number = engine_() & 0x3fffffffU; number < 1'000'000'000U) return number;
  }
  int64_t drawn() const { return drawn_; }

 private:
  at::mt19937 engine_;
  int64_t drawn_ = 0;
};

/// Makes the columns of a matrix orthogonal, of norm 1. A column that the columns before it can express, up to rounding, becomes 0: what
/// is left of it has no direction (PyTorch divides by its norm, and gets NaN for a column of zeros). The QR decomposition of wide matrices
/// makes other columns of them. Returns whether no column is 0.
bool orthogonalize(torch::Tensor matrix, double epsilon) {
  if (matrix.size(1) > 2) {
    matrix.copy_(std::get<0>(torch::linalg_qr(matrix)));
    return true;
  }
  const double rounding = matrix.scalar_type() == torch::kFloat64 ? 0x1p-52 : 0x1p-23;
  const auto norms = torch::linalg_vector_norm(matrix, 2, 0);
  bool complete = true;
  for (int64_t i = 0; i < matrix.size(1); ++i) {
    auto column = matrix.narrow(1, i, 1);
    const double norm = torch::linalg_vector_norm(column).item<double>();
    if (norm <= 8 * rounding * norms[i].item<double>()) {
      column.zero_();
      complete = false;
      continue;
    }
    column.div_(norm + epsilon);
    if (i + 1 == matrix.size(1)) break;
    auto rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    rest.sub_((column * rest).sum(0, /*keepdim=*/true) * column);
  }
  return complete;
}

class PowerSgd : public BaseReducer {
 public:
  PowerSgd(World& world, const ReducerPlan& plan, bool batched)
      : BaseReducer(world, plan), options_(power_sgd_options().read(plan.options)), batched_(batched) {}

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> list;
    for (size_t b = 0; b < states_.size(); ++b) {
      const auto& state = states_[b];
      if (options_.use_error_feedback) list.push_back(own_piece(fmt::format("error/{}", b), state.error));
      if (options_.warm_start) list.push_back(shared_piece(fmt::format("q/{}", b), state.q));
    }
    return list;
  }
  nlohmann::json scalars() const override {
    return {{"iter", iter_}, {"seeds", seeds_.drawn()}, {"error_scale", error_scale_}, {"has_q", has_q_}};
  }
  void load_scalars(const nlohmann::json& scalars) override {
    if (!scalars.is_object()) return;
    iter_ = scalars.value("iter", int64_t{0});
    seeds_ = SeedSource(options_.random_seed, scalars.value("seeds", int64_t{0}));
    error_scale_ = scalars.value("error_scale", 1.0);
    has_q_ = scalars.value("has_q", false);
  }

 protected:
  /// Factors and errors are kept in float32 or wider. Only messages have the dtype of the wire.
  torch::ScalarType dtype_of_values() const override { return wide_dtype(buckets_.front().gradients); }

  void prepared() override {
    if (buckets_.empty()) return;
    const auto options = torch::dtype(dtype_of_values()).device(world_.device);
    for (const auto& bucket : buckets_) {
      BucketState state;
      state.division =
          batched_ ? divide_as_square(bucket.gradients.numel(), options_) : divide_by_parameter(bucket.items, options_);
      state.p = torch::zeros({state.division.p_elements}, options);
      state.q = torch::zeros({state.division.q_elements}, options);
      if (options_.use_error_feedback) state.error = torch::zeros({state.division.matrix_elements}, options);
      states_.push_back(std::move(state));
    }
  }

  void start(size_t b, torch::Tensor& values) override {
    auto& state = states_[b];
    if (!compresses()) {
      state.sum = send(values);
      return;
    }
    if (b == 0) scale_errors();
    if (batched_) state.square = padded(values, state.division.matrices.front());
    add_error(state, values);
    start_q(state);
    for (auto&& part : parts(state, values)) torch::mm_out(part.p, part.matrix, part.q);
    send_plain(state, values);
    state.sum = send(state.p);
  }

  void complete(size_t b, torch::Tensor& values) override {
    auto& state = states_[b];
    if (!compresses()) {
      receive(state.sum, values);
    } else {
      if (b == 0)
        for (size_t each = 0; each < states_.size(); ++each) compute_q(states_[each], this->values(each));
      if (state.finite) receive_q(state);
      decompress(state, values);
      take_plain(state, values);
    }
    if (b + 1 < states_.size()) return;
    has_q_ = has_q_ || compresses();
    ++iter_;
  }

 private:
  /// A sum over the ranks that is under way, in the dtype of the wire.
  struct Message {
    torch::Tensor sent;
    Work work;
  };
  struct BucketState {
    PowerSgdDivision division;
    torch::Tensor p, q, error;
    // ---- during a step
    torch::Tensor square;
    Message sum, plain;
    bool finite = true;
  };
  /// The factors of a matrix of a bucket, its error, and the matrix itself if `values` is given: all as views.
  struct Part {
    torch::Tensor p, q, error = {}, matrix = {};
  };

  bool compresses() const { return iter_ >= options_.start_powerSGD_iter; }

  Message send(const torch::Tensor& values) const {
    Message message{.sent = values.to(scalar_type(plan_.wire)), .work = {}};
    message.work = start_sum(message.sent);
    return message;
  }
  static void receive(Message& message, const torch::Tensor& values) {
    wait(message.work);
    const auto sent = std::exchange(message.sent, {});
    if (!sent.is_same(values)) values.copy_(sent);
  }

  std::vector<Part> parts(const BucketState& state, const torch::Tensor& values = {}) const {
    std::vector<Part> list;
    int64_t p = 0, q = 0, error = 0;
    for (const auto& [offset, rows, columns, rank] : state.division.matrices) {
      const auto& source = batched_ ? state.square : values;
      Part part{.p = state.p.narrow(0, p, rows * rank).view({rows, rank}),
                .q = state.q.narrow(0, q, columns * rank).view({columns, rank})};
      if (source.defined()) part.matrix = source.narrow(0, offset, rows * columns).view({rows, columns});
      if (state.error.defined()) part.error = state.error.narrow(0, error, rows * columns).view({rows, columns});
      list.push_back(std::move(part));
      p += rows * rank;
      q += columns * rank;
      error += rows * columns;
    }
    return list;
  }

  /// Gradients are multiplied by the loss scale, and so are errors.
  void scale_errors() {
    const double scale = host_.loss_scale ? host_.loss_scale() : 1;
    if (scale != error_scale_)
      for (auto& state : states_)
        if (state.error.defined()) state.error.mul_(scale / error_scale_);
    error_scale_ = scale;
  }

  static torch::Tensor padded(const torch::Tensor& values, const PowerSgdDivision::Matrix& square) {
    auto whole = torch::zeros({square.elements()}, values.options());
    whole.narrow(0, 0, values.numel()).copy_(values);
    return whole;
  }

  void add_error(BucketState& state, const torch::Tensor& values) {
    if (!state.error.defined()) return;
    for (const auto& part : parts(state, values)) part.matrix.add_(part.error);
  }

  /// Q starts from that of the last step, or from random numbers that are equal on all ranks. Columns that are 0 become random, too:
  /// otherwise they would stay 0, and a matrix whose gradient was 0 once would get no gradients any more.
  void start_q(BucketState& state) {
    std::optional<at::Generator> generator;
    const auto fill = [&](torch::Tensor values) {
      if (!generator) generator = at::detail::createCPUGenerator(seeds_.next());
      values.copy_(torch::randn(values.sizes(), *generator, torch::dtype(values.scalar_type())));
    };
    for (const auto& part : parts(state)) {
      if (!options_.warm_start || !has_q_) fill(part.q);
      if (orthogonalize(part.q, options_.orthogonalization_epsilon)) continue;
      for (int64_t column = 0; column < part.q.size(1); ++column)
        if (part.q.select(1, column).count_nonzero().item<int64_t>() == 0) fill(part.q.narrow(1, column, 1));
      orthogonalize(part.q, options_.orthogonalization_epsilon);
    }
  }

  void send_plain(BucketState& state, const torch::Tensor& values) {
    if (state.division.plain_elements == 0) return;
    std::vector<torch::Tensor> pieces;
    for (const auto& [offset, count] : state.division.plain)
      pieces.push_back(values.narrow(0, offset, count).to(scalar_type(plan_.wire)));
    state.plain.sent = torch::cat(pieces);
    state.plain.work = start_sum(state.plain.sent);
  }

  void take_plain(BucketState& state, const torch::Tensor& values) {
    wait(state.plain.work);
    const auto sum = std::exchange(state.plain.sent, {});
    int64_t at = 0;
    for (const auto& [offset, count] : state.division.plain) {
      values.narrow(0, offset, count).copy_(sum.narrow(0, at, count));
      at += count;
    }
  }

  /// P and Q are equal on all ranks. If one is not finite, a gradient of some rank is not, or a message has overflowed. Then the sum is NaN
  /// on all ranks, and they keep their errors for the next step.
  void compute_q(BucketState& state, const torch::Tensor& values) {
    receive(state.sum, state.p);
    state.finite = is_finite(state.p);
    if (!state.finite) return;
    for (auto&& part : parts(state, values)) {
      orthogonalize(part.p, options_.orthogonalization_epsilon);
      torch::mm_out(part.q, part.matrix.t(), part.p);
    }
    state.sum = send(state.q);
  }

  void receive_q(BucketState& state) {
    receive(state.sum, state.q);
    state.finite = is_finite(state.q);
    if (!state.finite) state.q.zero_();
  }

  static bool is_finite(const torch::Tensor& values) { return values.isfinite().all().item<bool>(); }

  void decompress(BucketState& state, const torch::Tensor& values) {
    for (auto&& part : parts(state, values)) {
      if (!state.finite) {
        part.matrix.fill_(std::numeric_limits<float>::quiet_NaN());
        continue;
      }
      const auto sum = torch::mm(part.p, part.q.t());
      if (part.error.defined()) torch::sub_out(part.error, part.matrix, sum, 1.0 / world_.size);
      part.matrix.copy_(sum);
    }
    if (batched_) values.copy_(std::exchange(state.square, {}).narrow(0, 0, values.numel()));
  }

  PowerSgdOptions options_;
  bool batched_;
  std::vector<BucketState> states_;
  SeedSource seeds_{options_.random_seed, 0};
  int64_t iter_ = 0;        ///< steps so far, also skipped ones
  double error_scale_ = 1;  ///< loss scale of the errors
  bool has_q_ = false;      ///< an earlier step has left Q
};

}  // namespace

std::shared_ptr<Reducer> make_power_sgd(World& world, const ReducerPlan& plan, bool batched) {
  return std::make_shared<PowerSgd>(world, plan, batched);
}

}  // namespace runner
