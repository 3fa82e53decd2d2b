// The mask of dropout as a program: the same bits as runner/models/dropout.cpp draws on a CPU, for any step.
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

#include <cmath>

namespace runner::xla {

namespace {

/// Arithmetic of 64-bit numbers, which wraps around.
class Bits {
 public:
  explicit Bits(ModuleText& text) : text_(text) {}

  Value number(uint64_t bits, const Type& type) const { return text_.whole(static_cast<int64_t>(bits), type); }
  Value shifted(const Value& a, uint64_t places) const {
    return text_.binary(Binary::shift_right, a, number(places, a.type));
  }
  /// mix64() of runner/base/hash.hpp.
  Value mixed(const Value& a) const {
    auto z = text_.add(a, number(0x9e3779b97f4a7c15u, a.type));
    z = text_.multiply(folded(z, 30), number(0xbf58476d1ce4e5b9u, a.type));
    z = text_.multiply(folded(z, 27), number(0x94d049bb133111ebu, a.type));
    return folded(z, 31);
  }
  Value below(const Value& a, uint64_t bound) const {
    return text_.compare(Comparison::less, a, number(bound, a.type));
  }
  Value low_half(const Value& a) const { return text_.binary(Binary::and_, a, number(0xffffffffu, a.type)); }

 private:
  Value folded(const Value& z, uint64_t places) const { return text_.binary(Binary::xor_, z, shifted(z, places)); }
  ModuleText& text_;
};

/// The key of each line, the elements of the last dimension: of the shape of the mask without that dimension.
Value keys_of_lines(Call& call, const Bits& bits, const Shape& lines, bool only_rows) {
  auto& text = call.text;
  const Type scalar{ElementType::int64, {}}, type{ElementType::int64, lines};
  const auto step = call.step_numbers();
  const auto block = bits.mixed(bits.number(static_cast<uint64_t>(call.integer("block")), scalar));
  auto key = bits.mixed(text.binary(Binary::xor_, step.dropout_key, block));
  key = bits.mixed(text.add(key, bits.number(static_cast<uint64_t>(call.integer("site")), scalar)));
  key = text.expand(key, lines);
  for (int64_t dim = std::ssize(lines) - 1; dim > 0; --dim) key = bits.mixed(text.add(key, text.iota(type, dim)));
  const int64_t of_row = lines[0] / call.integer("rows");
  const auto place = text.iota(type, 0), count = bits.number(static_cast<uint64_t>(of_row), type);
  if (!only_rows) key = bits.mixed(text.add(key, text.binary(Binary::remainder, place, count)));
  const auto row = text.add(text.divide(place, count), text.expand(step.first_row, lines));
  return bits.mixed(text.add(key, row));
}

void keep_mask(Call& call) {
  auto& text = call.text;
  const Bits bits(text);
  const Shape sizes = call.argument("sizes").toIntVector();
  const Shape lines(sizes.begin(), sizes.end() - 1);
  const int64_t length = sizes.back(), pairs = (length + 1) / 2, rank = std::ssize(sizes);
  const bool only_rows = lines[0] == call.integer("rows") && rank > 2;
  Shape shape = lines;
  shape.push_back(pairs);
  const Type of_pairs{ElementType::int64, shape};
  const auto keys = repeated(text, keys_of_lines(call, bits, lines, only_rows), shape, {rank - 1});
  const auto drawn = bits.mixed(text.add(keys, text.iota(of_pairs, rank - 1)));
  const auto threshold = static_cast<uint64_t>(std::llround((1 - call.number("p")) * 0x1p32));
  shape.push_back(1);
  const auto first = text.reshape(bits.below(bits.low_half(drawn), threshold), shape);
  const auto second = text.reshape(bits.below(bits.shifted(drawn, 32), threshold), shape);
  shape.pop_back();
  shape.back() = 2 * pairs;
  auto mask = text.reshape(text.concatenate({first, second}, rank), shape);
  if (2 * pairs != length) mask = text.slice(mask, rank - 1, 0, length);
  call.give(mask);
}

}  // namespace

void add_dropout(Lowerings& table) { table.insert({{"runner::keep_mask", {keep_mask, true}}}); }

}  // namespace runner::xla
