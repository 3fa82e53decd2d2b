// Logits, targets and what a hook's `loss` makes of them: numbers in rows and columns, differentiable in the worker.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/value.hpp"

namespace runner::lua {

/// [rows, columns]: logits are [tokens, vocab], targets and losses [tokens, 1]. The worker implements it over tensors,
/// fake_matrix.hpp over plain numbers. Functions give new matrices; what an implementation finds wrong it throws as
/// ScriptMistake.
class Matrix {
 public:
  using Pointer = std::shared_ptr<Matrix>;
  enum class Map { exp, log, negative, abs, sqrt, tanh, sigmoid, softmax, log_softmax, detach };
  enum class Fold { sum, mean, max, logsumexp };
  enum class Pair { add, subtract, multiply, divide, power };

  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t columns() const = 0;
  virtual bool whole_numbers() const = 0;  ///< targets are: an index, not a value
  /// Of each element; softmax and log_softmax of each row.
  virtual Pointer map(Map map) const = 0;
  /// Over rows (dim 0: [1, columns]) or over columns (dim 1: [rows, 1]).
  virtual Pointer fold(Fold fold, int dim) const = 0;
  /// Element by element. A size of 1 stands for any.
  virtual Pointer pair(Pair pair, const Matrix& other) const = 0;
  /// The number as a 1 x 1 matrix that pairs with this one.
  virtual Pointer number(double value) const = 0;
  /// [rows, 1]: of each row the column that `index` [rows, 1] names, from 0.
  virtual Pointer gather(const Matrix& index) const = 0;
};

/// One call of `loss`: handles of matrices end with it, whatever the script keeps of them.
class MatrixScope {
 public:
  MatrixScope() = default;
  ~MatrixScope();
  MatrixScope(const MatrixScope&) = delete;

  Value handle(Matrix::Pointer matrix);
  /// What a script returned as losses [rows, 1]; throws ScriptMistake where it is something else.
  Matrix::Pointer losses(const Value& returned, int64_t rows) const;

 private:
  std::vector<std::weak_ptr<Object>> handles_;
};

/// What scripts can do with a matrix.
const Class& matrix_class();

}  // namespace runner::lua
