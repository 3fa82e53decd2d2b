// The checker of options: types, choices with their spellings, bounds, tables; and tables of options that fill a struct.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/option_table.hpp"

using namespace runner;
using nlohmann::json;
using Type = Option::Type;

namespace {

/// The message for a wrong value; "" if the value is right.
std::string said(const Option& option, json value) {
  const auto problem = check_option(option, value);
  return problem ? problem->message : "";
}

json converted(const Option& option, json value) {
  REQUIRE_FALSE(check_option(option, value));
  return value;
}

}  // namespace

TEST_CASE("a value is converted to the form of its option's type") {
  CHECK(converted({.name = "n", .type = Type::integer}, 2e8) == 200'000'000);
  CHECK(converted({.name = "n", .type = Type::integer}, 2e8).is_number_integer());
  CHECK(converted({.name = "size", .type = Type::bytes}, "2KiB") == 2048);
  CHECK(converted({.name = "tags", .type = Type::texts}, "one") == json{"one"});
  CHECK(converted({.name = "policy", .type = Type::names}, "block") == "block");
  const Option mode{
      .name = "mode", .type = Type::choice, .choices = {"32-true", "SUM"}, .spellings = {{"32", "32-true"}}};
  for (const json& given : {json(32), json("32"), json("32-TRUE"), json("Precision.32-true")})
    CHECK(converted(mode, given) == "32-true");
  CHECK(converted({.name = "case", .type = Type::choice, .choices = {"B", "b"}}, "B") == "B");
  CHECK(said({.name = "monitor", .type = Type::choice, .choices = {"loss", "val_loss"}}, "val.loss") ==
        "`monitor` cannot be \"val.loss\"");
  const Option hook{
      .name = "hook",
      .type = Type::choice,
      .choices = {"none"},
      .takes_script = true,
      .refuses = [](const json& value) { return value.dump().find("sgd") == std::string::npos ? "" : "no"; }};
  CHECK(converted(hook, "lua:my_sgd.lua") == "lua:my_sgd.lua");
  CHECK(said(hook, "sgd") == "no");
  CHECK(converted({.name = "hook", .type = Type::choice, .choices = {"none"}, .takes_script = true}, "lua:a.lua") ==
        "lua:a.lua");
}

TEST_CASE("a wrong value is described with what is allowed") {
  CHECK(said({.name = "n", .type = Type::integer}, 0.5) == "`n` must be an integer, not 0.5");
  CHECK(said({.name = "n", .type = Type::number, .minimum = 0, .above_minimum = true}, 0) ==
        "`n` must be above 0, not 0");
  CHECK(said({.name = "n", .type = Type::number, .maximum = 1}, 2) == "`n` must be at most 1, not 2");
  CHECK(said({.name = "n", .type = Type::number}, INFINITY) == "`n` must be finite");
  CHECK(said({.name = "n", .type = Type::number, .may_be_infinite = true}, INFINITY).empty());
  CHECK(said({.name = "n", .type = Type::number, .may_be_infinite = true}, NAN) == "`n` must be a number, not NaN");
  CHECK(said({.name = "size", .type = Type::bytes, .minimum = 1 << 20}, "2KiB") ==
        "`size` must be at least 1MiB, not 2KiB");
  CHECK(said({.name = "pair", .type = Type::pair, .maximum = 1}, {0.5, 2}) == "`pair` must be at most 1, not 2");
  json word = "summ";
  const auto problem = check_option({.name = "op", .type = Type::choice, .choices = {"sum", "mean"}}, word);
  REQUIRE(problem);
  CHECK(problem->code == "not-allowed");
  CHECK(problem->message == "`op` cannot be \"summ\"");
  CHECK(problem->suggestion == "sum");
}

TEST_CASE("tables and lists of tables are checked field by field") {
  const std::vector<Option> fields = {{.name = "pattern", .type = Type::text},
                                      {.name = "lr", .type = Type::number, .minimum = 0}};
  const Option table{.name = "rule", .type = Type::table, .fields = fields},
      list{.name = "groups", .type = Type::tables, .fields = fields};
  CHECK(said(table, {{"lr", -1}}) == "`lr` of rule must be at least 0, not -1");
  CHECK(said(table, {{"rl", 1}}) == "rule has no `rl`");
  CHECK(said(list, {{{"pattern", "a.*"}, {"lr", "x"}}}) == "`lr` of the group \"a.*\" must be a number, not \"x\"");
  CHECK(said(list, {{{"lr", 1}}}) == "`groups` must be a table or a list of tables, not [{\"lr\":1}]");
}

TEST_CASE("the defaults of a table of options are those of its struct") {
  struct Settings {
    int64_t stage = 2;
    std::optional<double> rate;
    std::chrono::seconds limit{90};
  };
  const auto table = OptionTable<Settings>()
                         .add({.name = "stage", .type = Type::integer}, &Settings::stage)
                         .add({.name = "rate", .type = Type::number}, &Settings::rate)
                         .add({.name = "limit", .type = Type::duration}, &Settings::limit)
                         .add({.name = "unread", .type = Type::boolean, .default_value = true});
  CHECK(with_defaults(table.options(), {{"rate", 0.5}}) ==
        json{{"stage", 2}, {"rate", 0.5}, {"limit", "1m30s"}, {"unread", true}});
  const auto settings = table.read({{"stage", 3}, {"rate", nullptr}, {"limit", "2m"}});
  CHECK(settings.stage == 3);
  CHECK_FALSE(settings.rate);
  CHECK(settings.limit == std::chrono::seconds(120));
  CHECK(table.print(Settings()) == json{{"stage", 2}, {"limit", "1m30s"}});
}
