#include "runner/lua/fake_matrix.hpp"

#include <algorithm>
#include <cmath>

#include "runner/lua/error.hpp"

namespace runner::lua {

namespace {

using Numbers = std::vector<double>;

double folded(Matrix::Fold fold, const Numbers& numbers) {
  double sum = 0, most = *std::max_element(numbers.begin(), numbers.end());
  for (double number : numbers) sum += fold == Matrix::Fold::logsumexp ? std::exp(number - most) : number;
  switch (fold) {
    case Matrix::Fold::max:
      return most;
    case Matrix::Fold::logsumexp:
      return most + std::log(sum);
    case Matrix::Fold::mean:
      return sum / static_cast<double>(numbers.size());
    default:
      return sum;
  }
}

double mapped(Matrix::Map map, double x) {
  switch (map) {
    case Matrix::Map::exp:
      return std::exp(x);
    case Matrix::Map::log:
      return std::log(x);
    case Matrix::Map::negative:
      return -x;
    case Matrix::Map::abs:
      return std::abs(x);
    case Matrix::Map::sqrt:
      return std::sqrt(x);
    case Matrix::Map::tanh:
      return std::tanh(x);
    case Matrix::Map::sigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

double combined(Matrix::Pair pair, double a, double b) {
  switch (pair) {
    case Matrix::Pair::add:
      return a + b;
    case Matrix::Pair::subtract:
      return a - b;
    case Matrix::Pair::multiply:
      return a * b;
    case Matrix::Pair::divide:
      return a / b;
    case Matrix::Pair::power:
      return std::pow(a, b);
  }
  return a;
}

class FakeMatrix : public Matrix {
 public:
  FakeMatrix(int64_t rows, int64_t columns, Numbers numbers, bool whole)
      : rows_(rows), columns_(columns), numbers_(std::move(numbers)), whole_(whole) {}

  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  bool whole_numbers() const override { return whole_; }
  const Numbers& numbers() const { return numbers_; }
  /// A dimension of size 1 is broadcast.
  double at(int64_t row, int64_t column) const {
    return numbers_[static_cast<size_t>((rows_ == 1 ? 0 : row) * columns_ + (columns_ == 1 ? 0 : column))];
  }

  Pointer map(Map map) const override {
    if (map == Map::softmax) return this->map(Map::log_softmax)->map(Map::exp);
    if (map == Map::log_softmax) return pair(Pair::subtract, *fold(Fold::logsumexp, 1));
    Numbers result = numbers_;
    for (double& number : result) number = mapped(map, number);
    return make_fake_matrix(rows_, columns_, std::move(result));
  }

  Pointer fold(Fold fold, int dim) const override {
    Numbers result;
    for (int64_t i = 0; i < (dim == 0 ? columns_ : rows_); ++i) {
      Numbers line;
      for (int64_t j = 0; j < (dim == 0 ? rows_ : columns_); ++j) line.push_back(dim == 0 ? at(j, i) : at(i, j));
      result.push_back(folded(fold, line));
    }
    return make_fake_matrix(dim == 0 ? 1 : rows_, dim == 0 ? columns_ : 1, std::move(result));
  }

  Pointer pair(Pair pair, const Matrix& with) const override {
    const auto& other = dynamic_cast<const FakeMatrix&>(with);
    int64_t rows = std::max(rows_, other.rows_), columns = std::max(columns_, other.columns_);
    Numbers result;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        result.push_back(combined(pair, at(row, column), other.at(row, column)));
    return make_fake_matrix(rows, columns, std::move(result));
  }

  Pointer number(double value) const override { return make_fake_matrix(1, 1, {value}); }

  Pointer gather(const Matrix& index) const override {
    const auto& columns = dynamic_cast<const FakeMatrix&>(index);
    Numbers result;
    for (int64_t row = 0; row < rows_; ++row) {
      auto column = static_cast<int64_t>(columns.at(row, 0));
      if (column < 0 || column >= columns_)
        throw ScriptMistake(fmt::format("gather: there is no column {} of {}", column, columns_));
      result.push_back(at(row, column));
    }
    return make_fake_matrix(rows_, 1, std::move(result));
  }

 private:
  int64_t rows_, columns_;
  Numbers numbers_;
  bool whole_;
};

}  // namespace

Matrix::Pointer make_fake_matrix(int64_t rows, int64_t columns, std::vector<double> numbers, bool whole) {
  return std::make_shared<FakeMatrix>(rows, columns, std::move(numbers), whole);
}

const std::vector<double>& fake_numbers(const Matrix& matrix) {
  return dynamic_cast<const FakeMatrix&>(matrix).numbers();
}

}  // namespace runner::lua
