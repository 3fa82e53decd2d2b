// The matrices of a hook's `loss`: logits, targets and results. They are differentiable in the worker.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/value.hpp"

namespace runner::lua {

/// Shape [rows, columns]: logits are [tokens, vocab], targets and losses [tokens, 1]. The worker implements it with
/// tensors, fake_matrix.hpp with plain numbers. Functions return new matrices. Implementations throw ScriptMistake.
class Matrix {
 public:
  using Pointer = std::shared_ptr<Matrix>;
  enum class Map { exp, log, negative, abs, sqrt, tanh, sigmoid, softmax, log_softmax, detach };
  enum class Fold { sum, mean, max, logsumexp };
  enum class Pair { add, subtract, multiply, divide, power };

  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t columns() const = 0;
  virtual bool whole_numbers() const = 0;  ///< true for targets, which are indices
  /// Element-wise; softmax and log_softmax over each row.
  virtual Pointer map(Map map) const = 0;
  /// Reduces over rows (dim 0, to [1, columns]) or over columns (dim 1, to [rows, 1]).
  virtual Pointer fold(Fold fold, int dim) const = 0;
  /// Element-wise with broadcasting of sizes of 1.
  virtual Pointer pair(Pair pair, const Matrix& other) const = 0;
  /// The number as a 1 x 1 matrix that can be combined with this one.
  virtual Pointer number(double value) const = 0;
  /// [rows, 1]: the element of each row in the column that `index` [rows, 1] gives, counted from 0.
  virtual Pointer gather(const Matrix& index) const = 0;
};

/// One call of `loss`. Its destructor invalidates the handles of all matrices of the call.
class MatrixScope {
 public:
  MatrixScope() = default;
  ~MatrixScope();
  MatrixScope(const MatrixScope&) = delete;

  Value handle(Matrix::Pointer matrix);
  /// The losses [rows, 1] that a script returned. Throws ScriptMistake if it returned something else.
  Matrix::Pointer losses(const Value& returned, int64_t rows) const;

 private:
  std::vector<std::weak_ptr<Object>> handles_;
};

/// The methods and operators of matrices in scripts.
const Class& matrix_class();

}  // namespace runner::lua
