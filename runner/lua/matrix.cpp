#include "runner/lua/matrix.hpp"

#include "runner/lua/error.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

struct Held {
  Matrix::Pointer matrix;
  MatrixScope* scope;
};

Held& held(const Arguments& arguments, int index) { return arguments.as<Held>(index, matrix_class()); }

std::string shape_text(const Matrix& matrix) { return fmt::format("[{}, {}]", matrix.rows(), matrix.columns()); }

/// Returns 0 or 1. Scripts count dimensions from 1; the default is 2, over the columns of each row.
int dim_of(const Arguments& arguments) {
  auto dim = arguments.integer(1, 2);
  if (dim != 1 && dim != 2)
    throw ScriptMistake(fmt::format("{}: dim is 1 (over the tokens) or 2 (over each token's columns), not {}",
                                    arguments.function_name(), dim));
  return static_cast<int>(dim) - 1;
}

bool fit(int64_t a, int64_t b) { return a == b || a == 1 || b == 1; }

Value paired(const Arguments& arguments, Matrix::Pair pair, int left, int right) {
  const Held& with = arguments.value(left).object ? held(arguments, left) : held(arguments, right);
  auto side = [&](int index) {
    return arguments.value(index).object ? held(arguments, index).matrix : with.matrix->number(arguments.number(index));
  };
  auto a = side(left), b = side(right);
  if (!fit(a->rows(), b->rows()) || !fit(a->columns(), b->columns()))
    throw ScriptMistake(fmt::format("{}: {} and {} do not fit: sizes must be equal, or one of them 1",
                                    arguments.function_name(), shape_text(*a), shape_text(*b)));
  return with.scope->handle(a->pair(pair, *b));
}

void add_maps(Class& made) {
  auto add = [&](const char* name, Matrix::Map map) {
    made.method(name, [map](const Arguments& arguments) {
      arguments.at_most(0);
      const auto& self = held(arguments, 0);
      return self.scope->handle(self.matrix->map(map));
    });
  };
  add("exp", Matrix::Map::exp);
  add("log", Matrix::Map::log);
  add("abs", Matrix::Map::abs);
  add("sqrt", Matrix::Map::sqrt);
  add("tanh", Matrix::Map::tanh);
  add("sigmoid", Matrix::Map::sigmoid);
  add("softmax", Matrix::Map::softmax);
  add("log_softmax", Matrix::Map::log_softmax);
  add("detach", Matrix::Map::detach);
  made.operation("__unm", [](const Arguments& arguments) {
    const auto& self = held(arguments, 1);
    return self.scope->handle(self.matrix->map(Matrix::Map::negative));
  });
}

void add_folds(Class& made) {
  auto add = [&](const char* name, Matrix::Fold fold) {
    made.method(name, [fold](const Arguments& arguments) {
      arguments.at_most(1);
      const auto& self = held(arguments, 0);
      return self.scope->handle(self.matrix->fold(fold, dim_of(arguments)));
    });
  };
  add("sum", Matrix::Fold::sum);
  add("mean", Matrix::Fold::mean);
  add("max", Matrix::Fold::max);
  add("logsumexp", Matrix::Fold::logsumexp);
}

void add_pairs(Class& made) {
  auto add = [&](const char* name, Matrix::Pair pair) {
    made.operation(name, [pair](const Arguments& arguments) { return paired(arguments, pair, 1, 2); });
  };
  add("__add", Matrix::Pair::add);
  add("__sub", Matrix::Pair::subtract);
  add("__mul", Matrix::Pair::multiply);
  add("__div", Matrix::Pair::divide);
  add("__pow", Matrix::Pair::power);
  made.method("pow", [](const Arguments& arguments) {
    arguments.at_most(1);
    return paired(arguments, Matrix::Pair::power, 0, 1);
  });
  made.method("gather", [](const Arguments& arguments) {
    arguments.at_most(1);
    const auto& self = held(arguments, 0);
    const auto& index = *held(arguments, 1).matrix;
    if (!index.whole_numbers() || index.columns() != 1 || index.rows() != self.matrix->rows())
      throw ScriptMistake(fmt::format("gather: argument 1 must be targets [{}, 1], a column for each row, not {}",
                                      self.matrix->rows(), shape_text(index)));
    return self.scope->handle(self.matrix->gather(index));
  });
}

}  // namespace

const Class& matrix_class() {
  static const Class kind = [] {
    Class made("matrix");
    made.property("rows", [](Object& self) { return Value(json(self.as<Held>().matrix->rows())); });
    made.property("columns", [](Object& self) { return Value(json(self.as<Held>().matrix->columns())); });
    add_maps(made);
    add_folds(made);
    add_pairs(made);
    return made;
  }();
  return kind;
}

MatrixScope::~MatrixScope() {
  for (auto& weak : handles_)
    if (auto object = weak.lock()) object->invalidate("it is valid only in the call of `loss` that made it");
}

Value MatrixScope::handle(Matrix::Pointer matrix) {
  auto object = Object::make(matrix_class(), Held{std::move(matrix), this});
  handles_.push_back(object);
  return Value(object);
}

Matrix::Pointer MatrixScope::losses(const Value& returned, int64_t rows) const {
  bool matrix = returned.object && &returned.object->kind() == &matrix_class();
  if (!matrix)
    throw ScriptMistake(
        fmt::format("`loss` must return the losses of its tokens, a matrix [{}, 1], not {}", rows, kind_of(returned)));
  auto made = returned.object->as<Held>().matrix;
  if (made->rows() != rows || made->columns() != 1 || made->whole_numbers())
    throw ScriptMistake(fmt::format("`loss` must return the losses of its tokens, a matrix [{}, 1], not {}", rows,
                                    made->whole_numbers() ? "the targets" : shape_text(*made)));
  return made;
}

}  // namespace runner::lua
