// Arithmetic, comparison and slices with Python's semantics. A Fault where Python raises an error.
//
// Integers have 64 bits: a larger result is refused, not rounded.
#pragma once
#include "runner/chat/tree.hpp"
#include "runner/chat/value.hpp"

namespace runner::jinja {

Value binary(Op op, const Value& a, const Value& b);
Value negative(const Value& value);
Value positive(const Value& value);
bool compare(Op op, const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
/// value[first:last:step]; none for a bound that is not written.
Value slice(const Value& value, const Value& first, const Value& last, const Value& step);
/// Python's "%" of a string: `values` is a tuple, a dictionary or one value.
Value percent_format(const Value& format, const Value& values);
/// The text with &, <, >, ' and " as HTML entities.
std::string html_escaped(std::string_view text);

}  // namespace runner::jinja
