#include "runner/train/hooks/matrix.hpp"

namespace runner {

namespace {

using torch::Tensor;

class TensorMatrix : public lua::Matrix {
 public:
  explicit TensorMatrix(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }

  int64_t rows() const override { return tensor_.size(0); }
  int64_t columns() const override { return tensor_.size(1); }
  bool whole_numbers() const override { return !tensor_.is_floating_point(); }

  Pointer map(Map map) const override { return make_matrix(mapped(map)); }
  Pointer fold(Fold fold, int dim) const override { return make_matrix(folded(fold, dim)); }
  Pointer pair(Pair pair, const Matrix& other) const override { return make_matrix(combined(pair, tensor_of(other))); }
  Pointer number(double value) const override {
    auto dtype = tensor_.is_floating_point() ? tensor_.scalar_type() : torch::kFloat32;
    return make_matrix(torch::full({1, 1}, value, tensor_.options().dtype(dtype).requires_grad(false)));
  }
  Pointer gather(const Matrix& index) const override { return make_matrix(tensor_.gather(1, tensor_of(index))); }

 private:
  Tensor mapped(Map map) const {
    switch (map) {
      case Map::exp:
        return tensor_.exp();
      case Map::log:
        return tensor_.log();
      case Map::negative:
        return -tensor_;
      case Map::abs:
        return tensor_.abs();
      case Map::sqrt:
        return tensor_.sqrt();
      case Map::tanh:
        return tensor_.tanh();
      case Map::sigmoid:
        return tensor_.sigmoid();
      case Map::softmax:
        return at::softmax(tensor_, 1);
      case Map::log_softmax:
        return at::log_softmax(tensor_, 1);
      case Map::detach:
        return tensor_.detach();
    }
    return {};
  }

  Tensor folded(Fold fold, int64_t dim) const {
    switch (fold) {
      case Fold::sum:
        return tensor_.sum({dim}, /*keepdim=*/true);
      case Fold::mean:
        return (tensor_.is_floating_point() ? tensor_ : tensor_.to(torch::kFloat32)).mean({dim}, /*keepdim=*/true);
      case Fold::max:
        return tensor_.amax({dim}, /*keepdim=*/true);
      case Fold::logsumexp:
        return tensor_.logsumexp({dim}, /*keepdim=*/true);
    }
    return {};
  }

  Tensor combined(Pair pair, const Tensor& other) const {
    switch (pair) {
      case Pair::add:
        return tensor_ + other;
      case Pair::subtract:
        return tensor_ - other;
      case Pair::multiply:
        return tensor_ * other;
      case Pair::divide:
        return tensor_ / other;
      case Pair::power:
        return tensor_.pow(other);
    }
    return {};
  }

  Tensor tensor_;
};

}  // namespace

lua::Matrix::Pointer make_matrix(Tensor tensor) { return std::make_shared<TensorMatrix>(std::move(tensor)); }

const Tensor& tensor_of(const lua::Matrix& matrix) { return dynamic_cast<const TensorMatrix&>(matrix).tensor(); }

}  // namespace runner
