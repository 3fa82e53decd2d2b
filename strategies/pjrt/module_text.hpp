// Writes programs in StableHLO's text (openxla.org/stablehlo/spec). Each function adds an operation and returns its result, whose type
// follows from the operands. Operands of wrong types are mistakes of the caller, which fail at once (RUNNER_CHECK).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/pjrt/element_type.hpp"

namespace runner::pjrt {

using Shape = std::vector<int64_t>;

struct Type {
  ElementType element = ElementType::float32;
  Shape shape;
  int64_t numel() const;
  bool operator==(const Type&) const = default;
};

/// A result of a program, or one of its arguments.
struct Value {
  int64_t id = -1;
  Type type;
  const Shape& shape() const { return type.shape; }
};

/// Of two operands with the same type.
enum class Binary : uint8_t { add, subtract, multiply, divide, maximum, minimum, power, and_, or_ };
enum class Unary : uint8_t {
  exponential,
  log,
  log_plus_one,
  tanh,
  logistic,
  rsqrt,
  sqrt,
  negate,
  abs,
  sign,
  floor,
  cosine,
  sine,
  not_,
  is_finite
};
enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };
enum class Reduction : uint8_t { sum, maximum };

/// The pairs of dimensions that a product sums over, and those that both operands and the result have in common. The result has the
/// common ones first, then the other dimensions of the left and of the right operand.
struct ProductDims {
  Shape left_common = {}, right_common = {}, left_summed = {}, right_summed = {};
};

/// A program for a number of replicas: each runs it with its own arguments, and collectives exchange values between them.
class ModuleText {
 public:
  explicit ModuleText(int replicas);

  /// Arguments have the order of these calls.
  Value argument(const Type& type);
  /// The program's results. An argument that is donated to an output gives it its memory; both have the same type.
  struct Output {
    Value value;
    std::optional<Value> donated = {};
  };
  /// The whole module. Nothing can be added after it.
  std::string finish(const std::vector<Output>& outputs);

  // ---- values that depend on no argument
  Value splat(double number, const Type& type);
  /// The position along a dimension.
  Value iota(const Type& type, int64_t dim);
  /// Which replica runs the program, an int32 scalar.
  Value replica();

  // ---- element by element
  Value binary(Binary kind, const Value& a, const Value& b);
  Value unary(Unary kind, const Value& a);
  Value compare(Comparison kind, const Value& a, const Value& b);
  /// a where `condition`, else b.
  Value select(const Value& condition, const Value& a, const Value& b);
  Value convert(const Value& a, ElementType element);
  Value add(const Value& a, const Value& b) { return binary(Binary::add, a, b); }
  Value subtract(const Value& a, const Value& b) { return binary(Binary::subtract, a, b); }
  Value multiply(const Value& a, const Value& b) { return binary(Binary::multiply, a, b); }
  Value divide(const Value& a, const Value& b) { return binary(Binary::divide, a, b); }
  Value multiply(const Value& a, double number) { return multiply(a, splat(number, a.type)); }
  Value add(const Value& a, double number) { return add(a, splat(number, a.type)); }

  // ---- shapes
  Value reshape(const Value& a, const Shape& shape);
  Value transpose(const Value& a, const Shape& order);
  /// Dimension i of `a` becomes dimension dims[i]; dimensions of size 1 may grow.
  Value broadcast(const Value& a, const Shape& shape, const Shape& dims);
  /// As LibTorch expands: dimensions are aligned at the end.
  Value expand(const Value& a, const Shape& shape);
  Value slice(const Value& a, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
  Value concatenate(const std::vector<Value>& parts, int64_t dim);
  /// Adds elements at the ends of a dimension.
  Value pad(const Value& a, int64_t dim, int64_t before, int64_t after, double number);

  // ---- sums, products, rows
  /// Over some dimensions, which the result lacks.
  Value reduce(Reduction kind, const Value& a, const Shape& dims);
  Value product(const Value& a, const Value& b, const ProductDims& dims);
  /// table [rows, ...], ids of any shape, int64: the rows [ids..., ...].
  Value rows(const Value& table, const Value& ids);
  /// The rows [ids..., ...] added into zeros of the table's type.
  Value add_rows(const Type& table, const Value& ids, const Value& values);

  // ---- between all replicas
  Value all_reduce(const Value& a);
  /// Joins the values of all replicas along a dimension.
  Value all_gather(const Value& a, int64_t dim);
  /// The replica's part, along a dimension, of the sum.
  Value reduce_scatter(const Value& a, int64_t dim);

 private:
  Value result(const Type& type);
  /// Adds "%id = TEXT : (operand types) -> type".
  Value operation(const std::string& text, const std::vector<Value>& operands, const Type& type);
  /// The same of an operation with a region that combines two elements.
  Value combining(const std::string& name, const std::string& operands, const char* combiner,
                  const std::string& attributes, const std::vector<Value>& types, const Type& type);
  std::string groups() const;

  int replicas_;
  int64_t next_ = 0;
  std::vector<Value> arguments_;
  std::string body_;
};

}  // namespace runner::pjrt
