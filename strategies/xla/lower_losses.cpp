// Losses: the negative logarithm of the likelihood of classes, and distances of numbers.
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

bool takes_mean(const Call& call) { return call.integer("reduction") == at::Reduction::Mean; }
bool keeps_elements(const Call& call) { return call.integer("reduction") == at::Reduction::None; }

// ---- classes: logarithms [rows, classes], and targets [rows]

/// The classes of rows that count, and the weight of each class.
class Classes {
 public:
  Classes(Call& call, const Type& type) : text_(call.text), type_(type) {
    auto target = call.value("target");
    target = text_.reshape(target, {type.shape[0]});
    const auto ignored = text_.whole(call.integer("ignore_index"), target.type);
    const auto counts = text_.compare(Comparison::not_equal, target, ignored);
    hit_ = text_.binary(Binary::and_, one_hot(text_, target, type.shape, 1), repeated(text_, counts, type.shape, {1}));
    weight_ = text_.splat(1, type);
    if (call.has("weight"))
      weight_ = text_.broadcast(text_.convert(call.value("weight"), type.element), type.shape, {1});
  }
  /// a times the weight at the class of each row that counts, else 0.
  Value at_class(const Value& a) const { return text_.select(hit_, text_.multiply(a, weight_), text_.splat(0, type_)); }
  Value weight_of_rows() const { return text_.reduce(Reduction::sum, at_class(text_.splat(1, type_)), {0, 1}); }

 private:
  ModuleText& text_;
  Type type_;
  Value hit_, weight_;
};

/// A single row has no dimension of its own.
Shape with_rows(const Shape& shape) { return shape.size() == 1 ? Shape{1, shape[0]} : shape; }

void nll_loss(Call& call) {
  auto& text = call.text;
  auto logs = widened(text, call.value("self"));
  logs = text.reshape(logs, with_rows(logs.shape()));
  const Classes classes(call, logs.type);
  const auto of_rows = text.unary(Unary::negate, text.reduce(Reduction::sum, classes.at_class(logs), {1}));
  const auto weight = classes.weight_of_rows();
  call.give(1, text.reshape(weight, call.result_type(1).shape));
  if (keeps_elements(call)) return call.give(0, text.reshape(of_rows, call.result_type(0).shape));
  const auto sum = text.reduce(Reduction::sum, of_rows, {0});
  call.give(0, takes_mean(call) ? text.divide(sum, weight) : sum);
}

void nll_loss_backward(Call& call) {
  auto& text = call.text;
  const auto result = wide(call.result_type());
  const Type type{result.element, with_rows(result.shape)};
  const Classes classes(call, type);
  auto gradient = widened(text, call.value("grad_output"));
  gradient = keeps_elements(call) ? repeated(text, text.reshape(gradient, {type.shape[0]}), type.shape, {1})
                                  : text.expand(gradient, type.shape);
  if (takes_mean(call)) gradient = text.divide(gradient, call.value("total_weight", type));
  call.give(text.reshape(text.unary(Unary::negate, classes.at_class(gradient)), result.shape));
}

// ---- distances

struct Distance {
  Type type;                         ///< of all elements
  Value difference, far, direction;  ///< self - target; where it exceeds delta; and 1 or -1
  double share = 1;                  ///< of an element in the result

  explicit Distance(Call& call) {
    auto& text = call.text;
    const auto element = wide(element_type(at::result_type(call.tensor("self"), call.tensor("target"))));
    type = {element, call.common_shape({"self", "target"})};
    difference = text.subtract(call.value("self", type), call.value("target", type));
    if (takes_mean(call)) share = 1 / static_cast<double>(type.numel());
    if (!call.has("delta")) return;
    far = text.compare(Comparison::greater, text.unary(Unary::abs, difference), text.splat(call.number("delta"), type));
    direction = text.unary(Unary::sign, difference);
  }
};

void give_loss(Call& call, const Distance& distance, const Value& elements) {
  auto& text = call.text;
  auto result = elements;
  if (!keeps_elements(call)) {
    result = text.reduce(Reduction::sum, elements, counted_dims(0, std::ssize(elements.shape())));
    result = text.multiply(result, distance.share);
  }
  call.give(text.convert(result, element_type(call.tensor("self").scalar_type())));
}

void give_gradient(Call& call, const Distance& distance, const Value& slope) {
  auto& text = call.text;
  const auto gradient = text.multiply(call.value("grad_output", distance.type), distance.share);
  call.give(text.convert(text.multiply(gradient, slope), element_type(call.tensor("self").scalar_type())));
}

void mse_loss(Call& call) {
  const Distance distance(call);
  give_loss(call, distance, call.text.multiply(distance.difference, distance.difference));
}

void mse_loss_backward(Call& call) {
  const Distance distance(call);
  give_gradient(call, distance, call.text.multiply(distance.difference, 2));
}

void huber_loss(Call& call) {
  auto& text = call.text;
  const Distance distance(call);
  const double delta = call.number("delta");
  const auto square = text.multiply(text.multiply(distance.difference, distance.difference), 0.5);
  const auto line = text.multiply(text.add(text.unary(Unary::abs, distance.difference), -0.5 * delta), delta);
  give_loss(call, distance, text.select(distance.far, line, square));
}

void huber_loss_backward(Call& call) {
  auto& text = call.text;
  const Distance distance(call);
  const auto line = text.multiply(distance.direction, call.number("delta"));
  give_gradient(call, distance, text.select(distance.far, line, distance.difference));
}

}  // namespace

void add_losses(Lowerings& table) {
  table.insert({{"aten::nll_loss_forward", {nll_loss}},
                {"aten::nll_loss_backward", {nll_loss_backward}},
                {"aten::mse_loss", {mse_loss}},
                {"aten::mse_loss_backward", {mse_loss_backward, true}},
                {"aten::huber_loss", {huber_loss, true}},
                {"aten::huber_loss_backward", {huber_loss_backward, true}}});
}

}  // namespace runner::xla
