// JSON from elsewhere: its bounds, and what it keeps.
#include "runner/base/foreign_json.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {
std::string fault_of(const std::string& text) {
  JsonFault fault;
  return foreign_json(text, &fault).is_discarded() ? fmt::format("{}: {}", fault.byte, fault.reason) : "";
}
std::string nested(size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}
}  // namespace

TEST_CASE("the depth of JSON is bounded") {
  for (const auto& [open, close] : {std::pair("[", "]"), {"{\"a\":", "}"}}) {
    const auto most = nested(json_depth_max, open, close);
    CHECK(foreign_json(most) == json::parse(most));
    CHECK(foreign_json<ordered_json>(most).dump() == most);
    for (const size_t deep : {json_depth_max + 1, size_t{100'000}})
      CHECK(fault_of(nested(deep, open, close)) == "0: objects and lists are nested more than 500 deep");
  }
}

TEST_CASE("every fault of JSON is a reason and its byte") {
  CHECK(fault_of("1e999") == "0: number overflow parsing '1e999'");
  CHECK(fault_of("{\"a\": 1,}") ==
        "9: syntax error while parsing object key - unexpected '}'; expected string literal");
  CHECK(fault_of("") ==
        "1: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal");
  CHECK(
      fault_of("\"\xff\"").starts_with("2: syntax error while parsing value - invalid string: ill-formed UTF-8 byte"));
  CHECK(fault_of("[1] 2").starts_with("5: "));
  JsonFault fault;
  CHECK(foreign_json(R"({"a": {"b": 1, "b": 2}, "c": [{"d": 1}, {"d": 2}]})", &fault).size() == 2);
  CHECK(fault.twice.empty());
  CHECK(foreign_json(R"({"a": 1, "b": 2, "a": 3})", &fault) == json{{"a", 3}, {"b", 2}});
  CHECK(fault.twice == "a");
}

TEST_CASE("whole numbers keep their digits where they are asked for") {
  const std::string text = R"([12345678901234567890123, -9223372036854775809, 18446744073709551615, 1e22, -1, 0.5])";
  const auto digits = foreign_json<ordered_json>(text, nullptr, /*all_digits=*/true);
  const auto written = [&](size_t i) {
    return std::string(digits[i].get_binary().begin(), digits[i].get_binary().end());
  };
  CHECK(written(0) == "12345678901234567890123");
  CHECK(written(1) == "-9223372036854775809");
  CHECK(digits[2] == 18446744073709551615u);
  CHECK(digits[3] == 1e22);
  CHECK(foreign_json(text) == json::parse(text));
}
