// Errors of templates: the place, the source line, the nearest name; and the limits of a template.
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

TEST_CASE("errors name the template, line and column, and show the line", "[jinja]") {
  CHECK(rendering_error("first\n{{ 'ü' ~ nope.x }}\n") ==
        "test.jinja:2:15: 'nope' is undefined\n 2 | {{ 'ü' ~ nope.x }}\n   |               ^");
  CHECK(rendering_error("{{ messages[0]['role'] + 1 }}", R"({"messages": [{"role": "user"}]})") ==
        "test.jinja:1:24: unsupported operand types for +: 'str' and 'int'\n 1 | {{ messages[0]['role'] + 1 }}\n   |   "
        "                     ^");
  auto one_line = std::string(500, 'x') + "{{ 1 + 'a' }}" + std::string(500, 'y');
  CHECK_THAT(rendering_error(one_line), ContainsSubstring(" 1 | ...xxx") && ContainsSubstring("yyy..."));
}

TEST_CASE("syntax errors say what is expected", "[jinja]") {
  struct Example {
    const char *text, *message;
  };
  for (auto& [text, message] : {Example{"{% if x %}a", "1:4: this if block has no end: {% endif %} is missing"},
                                {"{% endfor %}", "1:4: unexpected endfor: no open block has it"},
                                {"{{ 1 + }}", "1:8: expected an expression, found the end of the output, }}"},
                                {"{{ (1 }}", "1:7: unexpected '}', expected ')'"},
                                {"{{ 'a }}", "1:4: this string has no end"},
                                {"{# a", "1:1: this comment has no end"},
                                {"{% raw %}", "1:1: this raw block has no end"},
                                {"{{ a", "1:1: this output has no end: }} is missing"},
                                {"{% fro x in y %}{% endfor %}", "there is no statement fro; did you mean for?"},
                                {"{% include 'x' %}", "the statement include is not supported"},
                                {"{{ x | uper }}", "1:8: there is no filter uper; did you mean upper?"},
                                {"{{ x | urlize }}", "the filter urlize of jinja2 is not supported here"},
                                {"{{ x is strin }}", "1:9: there is no test strin; did you mean string?"},
                                {"{% break %}", "break is outside of a loop"},
                                {"{% set true = 1 %}", "true is a constant"},
                                {"{{ f(a=1, 2) }}", "this argument may not stand here"},
                                {"\xff", "not valid UTF-8"}}) {
    INFO(text);
    CHECK_THAT(rendering_error(text), ContainsSubstring(message));
  }
}

TEST_CASE("errors while rendering give the nearest name", "[jinja]") {
  CHECK_THAT(rendering_error("{{ 'a'.stripp() }}"),
             ContainsSubstring("'str object' has no attribute 'stripp'; did you mean strip?"));
  CHECK_THAT(rendering_error("{{ rangee(3) }}"), ContainsSubstring("'rangee' is undefined; did you mean range?"));
  CHECK_THAT(rendering_error("{{ [1].append(2) }}"), ContainsSubstring("would change the data"));
  CHECK_THAT(rendering_error("{{ 'a'.encode() }}"),
             ContainsSubstring("the method encode of str is not supported here"));
  CHECK_THAT(rendering_error("{{ [1] | map('upper') }}"), ContainsSubstring("add | list"));
}

TEST_CASE("raise_exception has its own type", "[jinja]") {
  jinja::Template refusing("t", "{% if 1 %}\n{{ raise_exception('roles must alternate') }}{% endif %}");
  try {
    refusing.render(Json::object());
    FAIL("no error");
  } catch (const jinja::RaisedByTemplate& error) {
    CHECK(error.message() == "roles must alternate");
    CHECK(error.line() == 2);
    CHECK(error.column() == 4);
    CHECK(error.code() == ExitCode::usage);
  }
}

TEST_CASE("a template is bounded", "[jinja]") {
  CHECK_THAT(rendering_error("{% for i in range(1000000) %}{% endfor %}"), ContainsSubstring("Range too big"));
  CHECK_THAT(rendering_error(
                 "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
             ContainsSubstring("becomes larger than 64.0 MiB"));
  CHECK_THAT(rendering_error("{{ 'a' * 100000000000 }}"), ContainsSubstring("becomes larger"));
  CHECK_THAT(rendering_error("{{ '%1000000000d' % 1 }}"), ContainsSubstring("becomes larger"));
  CHECK_THAT(rendering_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
             ContainsSubstring("does a macro call itself without end?"));
  CHECK_THAT(
      rendering_error("{% set ns = namespace(x=[]) %}{% for i in range(10000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      ContainsSubstring("nested more than 500 deep"));
  CHECK_THAT(rendering_error("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
             ContainsSubstring("more than 200 nested"));
  CHECK_THAT(rendering_error("{{ " + std::string(5000, '-') + "1 }}"), ContainsSubstring("more than 200 nested"));
  jinja::Template loops("t", "{% for i in range(1000) %}{% for j in range(1000) %}x{% endfor %}{% endfor %}");
  auto limited = [&](jinja::Limits limits) {
    return error_of([&] { loops.render(Json::object(), {.limits = limits, .now = {}}); });
  };
  CHECK_THAT(limited({.steps = 10'000}), ContainsSubstring("ran 10000 steps without an end"));
  CHECK_THAT(limited({.output_bytes = 1000}), ContainsSubstring("the output is longer than 1000 bytes"));
  CHECK_THAT(rendering_error("{{ 9223372036854775807 + 1 }}"), ContainsSubstring("no integer of 64 bits"));
}

TEST_CASE("a namespace that contains itself is freed", "[jinja]") {
  CHECK(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.l | length }}") == "1");
}
