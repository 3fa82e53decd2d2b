#include "strategies/contract/matrix_update.hpp"

#include <cmath>
#include <span>
#include <utility>

#include "strategies/optimizer/matrix_rounds.hpp"

namespace runner {

namespace {

constexpr double floor_of_squares = 1e-30, floor_of_parameter = 1e-3;  ///< eps of Transformers' Adafactor

torch::Tensor wide_gradient(const MatrixPart& part, double divisor) {
  auto gradient = part.gradient.to(wide_dtype(part.parameter), /*non_blocking=*/false, /*copy=*/true);
  return divisor == 1.0 ? gradient : gradient.div_(divisor);
}

/// Calls use(row, first column, first element, count) for the ranges of rows that the part covers: a part of the first row and of the
/// last one as single ranges, and the complete rows between as one range with `count` = rows * columns.
template <typename Use>
void for_each_rows(const MatrixPart& part, Use&& use) {
  const int64_t columns = part.columns(), begin = part.offset, end = begin + part.parameter.numel();
  int64_t at = begin;
  if (at % columns != 0) {
    const int64_t until = std::min(end, (at / columns + 1) * columns);
    use(at / columns, at % columns, at - begin, until - at);
    at = until;
  }
  const int64_t whole = (end - at) / columns * columns;
  if (whole > 0) use(at / columns, 0, at - begin, whole);
  at += whole;
  if (at < end) use(at / columns, 0, at - begin, end - at);
}

bool is_factored(const MatrixPart& part) { return part.shape.size() == 2; }

/// The sums of a part: of squares for each row and each column, and of the squares of the parameter.
struct Sums {
  torch::Tensor rows, columns, parameter;
};

/// Adds this rank's squares.
void add_squares(const MatrixPart& part, double divisor, const Sums& sums) {
  const auto squares = wide_gradient(part, divisor).square_().add_(floor_of_squares);
  for_each_rows(part, [&](int64_t row, int64_t column, int64_t first, int64_t count) {
    const int64_t width = std::min(count, part.columns());
    const auto values = squares.narrow(0, first, count).view({-1, width});
    sums.rows.narrow(0, row, values.size(0)).add_(values.sum(1));
    sums.columns.narrow(0, column, width).add_(values.sum(0));
  });
}

/// The update of a part without the learning rate and the clipping.
torch::Tensor direction(const MatrixPart& part, double divisor) {
  auto gradient = wide_gradient(part, divisor);
  if (!is_factored(part)) return gradient.mul_(part.states[0].rsqrt());
  const auto row_factors = part.states[0].div(part.states[0].mean()).rsqrt_(), column_factors = part.states[1].rsqrt();
  for_each_rows(part, [&](int64_t row, int64_t column, int64_t first, int64_t count) {
    const int64_t width = std::min(count, part.columns());
    auto values = gradient.narrow(0, first, count).view({-1, width});
    values.mul_(row_factors.narrow(0, row, values.size(0)).unsqueeze(1)).mul_(column_factors.narrow(0, column, width));
  });
  return gradient;
}

/// Tensors of zeros on the device of the parts, cut out of one buffer for the shared parts, so that one sum adds all of them.
class SumBuffer {
 public:
  SumBuffer(const std::vector<MatrixPart>& parts, int64_t (*sizes)(const MatrixPart&), torch::ScalarType of_shared) {
    int64_t shared = 0;
    for (const auto& part : parts) shared += part.shared ? sizes(part) : 0;
    if (shared > 0) buffer_ = torch::zeros({shared}, torch::dtype(of_shared).device(parts.front().device));
    int64_t at = 0;
    for (const auto& part : parts) {
      const int64_t size = sizes(part);
      const auto own = part.parameter.defined() ? wide_dtype(part.parameter) : of_shared;
      slices_.push_back(part.shared ? buffer_.narrow(0, at, size)
                                    : torch::zeros({size}, torch::dtype(own).device(part.device)));
      if (part.shared) at += size;
    }
  }
  const torch::Tensor& operator[](size_t part) const { return slices_[part]; }
  void sum(const ShardGroup& group) {
    if (buffer_.defined()) group.sum(buffer_);
  }

 private:
  torch::Tensor buffer_;
  std::vector<torch::Tensor> slices_;
};

int64_t first_sums(const MatrixPart& part) { return adafactor_sums(part.shape) - 1; }
int64_t second_sums(const MatrixPart&) { return 1; }

Sums cut(const MatrixPart& part, const torch::Tensor& slice) {
  if (!is_factored(part)) return {{}, {}, slice.narrow(0, 0, 1)};
  return {slice.narrow(0, 0, part.rows()), slice.narrow(0, part.rows(), part.columns()),
          slice.narrow(0, part.rows() + part.columns(), 1)};
}

}  // namespace

void adafactor_update(const OptimizerConfig& config, const Optimizer::Update& update, std::vector<MatrixPart>& parts,
                      const ShardGroup& group) {
  const double past = 1 - std::pow(static_cast<double>(update.step), -config.decay_rate);
  SumBuffer first(parts, first_sums, group.sums), second(parts, second_sums, group.sums);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    if (!part.parameter.defined()) continue;
    const Sums sums = cut(part, first[i]);
    if (is_factored(part)) add_squares(part, update.gradient_divisor, sums);
    if (config.scale_parameter) sums.parameter.add_(part.parameter.to(first[i].scalar_type()).square().sum());
  }
  first.sum(group);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    if (!part.parameter.defined()) continue;
    const Sums sums = cut(part, first[i]);
    if (is_factored(part)) {
      part.states[0].mul_(past).add_(sums.rows, (1 - past) / static_cast<double>(part.columns()));
      part.states[1].mul_(past).add_(sums.columns, (1 - past) / static_cast<double>(part.rows()));
    } else {
      const auto squares = wide_gradient(part, update.gradient_divisor).square_().add_(floor_of_squares);
      part.states[0].mul_(past).add_(squares, 1 - past);
    }
    second[i].add_(direction(part, update.gradient_divisor).square_().sum());
  }
  second.sum(group);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    if (!part.parameter.defined()) continue;
    const auto numel = static_cast<double>(part.numel());
    auto rate = torch::full_like(second[i], part.group.lr * update.lr_factor);
    if (config.scale_parameter)
      rate.mul_(cut(part, first[i]).parameter.div(numel).sqrt_().clamp_min_(floor_of_parameter));
    const auto clip = second[i].div(numel).sqrt_().div_(config.clip_threshold).clamp_min_(1);
    const auto kept = rate.mul(-part.group.weight_decay).add_(1);
    const auto change = direction(part, update.gradient_divisor).mul_(rate.div_(clip));
    if (part.parameter.scalar_type() == change.scalar_type())
      part.parameter.mul_(kept).sub_(change);
    else
      part.parameter.copy_(part.parameter.to(change.scalar_type()).mul_(kept).sub_(change));
  }
}

namespace {

/// `matrix` in bfloat16, overwritten. Its singular values become about 1.
torch::Tensor orthogonalized(torch::Tensor matrix, int64_t steps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool tall = matrix.size(0) > matrix.size(1);
  if (tall) matrix = matrix.t();
  matrix.div_(matrix.norm().clamp_min(1e-7));
  for (int64_t step = 0; step < steps; ++step) {
    const auto gram = matrix.mm(matrix.t());
    matrix = torch::addmm(matrix, torch::addmm(gram, gram, gram, b, c), matrix, a);
  }
  return tall ? matrix.t() : matrix;
}

double rate_factor(const OptimizerConfig& config, const MatrixPart& part) {
  const auto rows = static_cast<double>(part.rows()), columns = static_cast<double>(part.columns());
  return config.match_rms ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

namespace {

torch::TensorOptions matrix_options(const std::vector<MatrixPart>& parts) {
  return torch::dtype(torch::kBFloat16).device(parts.empty() ? torch::Device(torch::kCPU) : parts.front().device);
}

/// Updates the momentum, and writes what is to be orthogonalized to the part of `matrix`, 1-d.
void put_momentum(const OptimizerConfig& config, const MatrixPart& part, double divisor, const torch::Tensor& matrix) {
  auto gradient = wide_gradient(part, divisor);
  auto momentum = part.states[0].to(gradient.scalar_type());
  momentum.lerp_(gradient, 1 - config.momentum);
  if (config.nesterov)
    gradient.lerp_(momentum, config.momentum);
  else
    gradient.copy_(momentum);
  if (!momentum.is_alias_of(part.states[0])) part.states[0].copy_(momentum);
  matrix.narrow(0, part.offset, gradient.numel()).copy_(gradient);
}

/// Changes the parameter by its part of the orthogonalized `matrix`, 1-d.
void apply_matrix(const OptimizerConfig& config, const Optimizer::Update& update, const MatrixPart& part,
                  const torch::Tensor& matrix) {
  const double rate = part.group.lr * update.lr_factor;
  const auto change = matrix.narrow(0, part.offset, part.parameter.numel()).to(wide_dtype(part.parameter));
  part.parameter.mul_(1 - rate * part.group.weight_decay);
  // A mixed subtraction would make a wide copy of the result, too.
  auto wide = part.parameter.to(change.scalar_type()).sub_(change, rate * rate_factor(config, part));
  if (!wide.is_alias_of(part.parameter)) part.parameter.copy_(wide);
}

torch::Tensor orthogonalized_1d(const OptimizerConfig& config, const MatrixPart& part, torch::Tensor matrix) {
  auto rows = matrix.view(part.shape);
  matrix.reset();  // the first iteration frees the memory
  return orthogonalized(std::move(rows), config.ns_steps).reshape({-1});
}

/// The matrices of one round (order_of_matrices()).
void update_round(const OptimizerConfig& config, const Optimizer::Update& update, const ShardGroup& group,
                  std::span<const MatrixPart* const> round, const torch::TensorOptions& options) {
  torch::Tensor own;
  for (int owner = 0; owner < std::ssize(round); ++owner) {
    const MatrixPart& part = *round[static_cast<size_t>(owner)];
    auto matrix = torch::zeros({part.numel()}, options);
    if (part.parameter.defined()) put_momentum(config, part, update.gradient_divisor, matrix);
    auto bytes = matrix.view(torch::kUInt8);
    group.sum_at(bytes, owner);
    if (owner == group.rank) own = std::move(matrix);
  }
  if (own.defined()) own = orthogonalized_1d(config, *round[static_cast<size_t>(group.rank)], std::exchange(own, {}));
  for (int owner = 0; owner < std::ssize(round); ++owner) {
    const MatrixPart& part = *round[static_cast<size_t>(owner)];
    const auto matrix = owner == group.rank ? std::exchange(own, {}) : torch::empty({part.numel()}, options);
    auto bytes = matrix.view(torch::kUInt8);
    group.send_from(bytes, owner);
    if (part.parameter.defined()) apply_matrix(config, update, part, matrix);
  }
}

}  // namespace

void muon_update(const OptimizerConfig& config, const Optimizer::Update& update, std::vector<MatrixPart>& parts,
                 const ShardGroup& group) {
  const auto options = matrix_options(parts);
  std::vector<const MatrixPart*> shared;
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& part : parts) {
    if (part.shared) {
      shared.push_back(&part);
      shapes.push_back(part.shape);
      continue;
    }
    auto matrix = torch::empty({part.numel()}, options);
    put_momentum(config, part, update.gradient_divisor, matrix);
    apply_matrix(config, update, part, orthogonalized_1d(config, part, std::exchange(matrix, {})));
  }
  std::vector<const MatrixPart*> round;
  const auto order = order_of_matrices(shapes);
  for (size_t i = 0; i < order.size(); ++i) {
    round.push_back(shared[order[i]]);
    if (std::ssize(round) < group.size && i + 1 < order.size()) continue;
    update_round(config, update, group, round, options);
    round.clear();
  }
}

}  // namespace runner
