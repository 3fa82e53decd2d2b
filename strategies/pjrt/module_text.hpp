// Writes programs in StableHLO's text (openxla.org/stablehlo/spec). Each function adds an operation and returns its result, whose type
// follows from the operands. Operands of wrong types are mistakes of the caller, which fail at once (RUNNER_CHECK).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strategies/pjrt/array_type.hpp"

namespace runner::pjrt {

/// A result of a program, or one of its arguments.
struct Value {
  int64_t id = -1;
  int64_t part = -1;  ///< of an operation with several results; -1: it has one
  Type type;
  const Shape& shape() const { return type.shape; }
};

/// Operations on two operands with the same type.
enum class Binary : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  power,
  remainder,
  and_,
  or_,
  xor_,
  shift_right
};
enum class Unary : uint8_t {
  exponential,
  exponential_minus_one,
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
  erf,
  not_,
  is_finite,
  ceil,
  round  ///< to the nearest integer, and from the middle to an even one
};
enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };
enum class Reduction : uint8_t { sum, maximum, minimum };

/// The pairs of dimensions that a product sums over, and those that both operands and the result have in common. The result has the
/// common ones first, then the other dimensions of the left and of the right operand.
struct ProductDims {
  Shape left_common = {}, right_common = {}, left_summed = {}, right_summed = {};
};

/// How a kernel moves over an input. Each list has a number for each spatial dimension.
struct ConvolutionForm {
  Shape stride;
  Shape before, after;       ///< zeros at the ends of the input; if negative, elements that are left out
  Shape input_dilation;      ///< distance of neighbours of the input; zeros are in between
  Shape kernel_dilation;     ///< distance of neighbours of the kernel
  bool flips = false;        ///< reverses the kernel
  int64_t groups = 1;        ///< of channels: each has its own part of the outputs, and sees its own part of the inputs
  int64_t batch_groups = 1;  ///< of rows: the outputs of a group of channels are those of its own group of rows
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
  /// A splat of an integer that a double may not represent.
  Value whole(int64_t number, const Type& type);
  /// Elements in row-major order, as they are in memory.
  Value constant(std::span<const std::byte> elements, const Type& type);
  /// The position along a dimension.
  Value iota(const Type& type, int64_t dim);

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
  /// Expands as LibTorch does: dimensions are aligned at the end.
  Value expand(const Value& a, const Shape& shape);
  Value slice(const Value& a, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
  /// Dimensions from their ends to their beginnings.
  Value reverse(const Value& a, const Shape& dims);
  Value concatenate(const std::vector<Value>& parts, int64_t dim);
  /// `a` with `part` in it, from the indices `begin` on.
  Value update_slice(const Value& a, const Value& part, const Shape& begin);
  /// Adds elements at the ends of a dimension.
  Value pad(const Value& a, int64_t dim, int64_t before, int64_t after, double number);

  // ---- sums and products
  /// Over some dimensions, which the result lacks.
  Value reduce(Reduction kind, const Value& a, const Shape& dims);
  /// Products of float32 are computed with all bits of their factors.
  /// `element`: of the result, in which sums are taken; by default that of the operands.
  Value product(const Value& a, const Value& b, const ProductDims& dims, std::optional<ElementType> element = {});
  /// input [N, C, spatial...], kernel [outputs, C / groups, spatial...] -> [N / batch groups, outputs, spatial...].
  Value convolution(const Value& input, const Value& kernel, const ConvolutionForm& form);

  // ---- rows
  /// table [rows, ...], ids of any shape, int64: the rows [ids..., ...].
  Value rows(const Value& table, const Value& ids);
  /// The rows [ids..., ...] added into zeros of the table's type.
  Value add_rows(const Type& table, const Value& ids, const Value& values);
  /// The table with the rows [ids..., ...] in place of its own. Of several rows with the same id, one is taken.
  Value put_rows(const Value& table, const Value& ids, const Value& values);
  /// The largest elements along the last dimension in descending order, and their positions (int32).
  std::pair<Value, Value> largest(const Value& a, int64_t count);

  // ---- between all replicas
  /// The sum over all replicas.
  Value all_reduce(const Value& a);
  /// Joins the values of all replicas along a dimension, in their order. The dimension becomes as many times larger as there are replicas.
  Value all_gather(const Value& a, int64_t dim);
  /// Divides the sum over all replicas along a dimension into as many equal parts as there are replicas, and gives replica r part r. The
  /// number of replicas must divide the dimension's size.
  Value reduce_scatter(const Value& a, int64_t dim);

  // ---- for the compiler
  /// Copies of the values. The compiler does not combine what is computed from them with what is computed from the operands, so that it is
  /// computed again.
  std::vector<Value> barrier(const std::vector<Value>& values);

 private:
  Value result(const Type& type);
  /// Adds "%id = TEXT : (operand types) -> type".
  Value operation(const std::string& text, const std::vector<Value>& operands, const Type& type);
  /// Adds an operation with a region that combines two elements; combiner null: the second one replaces the first.
  Value combining(const std::string& name, const std::string& operands, const char* combiner,
                  const std::string& attributes, const std::vector<Value>& types, const Type& type);
  Value neutral(Reduction kind, ElementType element);
  /// Rows that are combined with those of a table.
  Value scattered(const Value& table, const Value& ids, const Value& values, const char* combiner);
  /// The attribute of a collective that all replicas take part in.
  std::string groups() const;

  int replicas_;
  int64_t next_ = 0;
  std::vector<Value> arguments_;
  std::string body_;
};

}  // namespace runner::pjrt
