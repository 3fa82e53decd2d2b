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

TEST_CASE("the memory and the work of a template are bounded", "[jinja]") {
  const std::string doubled =
      "{% set ns = namespace(l=[0]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}";
  const std::string other =
      "{% set o = namespace(l=[0]) %}{% for i in range(40) %}{% set o.l = [o.l, o.l] %}{% endfor %}";
  struct Example {
    std::string text, message;
  };
  for (const auto& [text, message] :
       {Example{"{% set ns = namespace(l=[]) %}{% for i in range(900) %}{% set ns.l = ns.l + ['a' * 60000000] %}{% "
                "endfor %}",
                "the values of the template take too much memory"},
        {"{% set x = 'a' * 60000000 %}{{ x | list | length }}", "the values of the template take too much memory"},
        {"{% macro m(n) %}{{ 'a' * 60000000 }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
         "the values of the template take too much memory"},
        {"{% set x = ([0] * 2000000) | map('string') | list, ([0] * 2000000) | map('attr', 'hex') | list %}",
         "the values of the template take too much memory"},
        {doubled + other + "{{ ns.l == o.l }}", "ran 50000000 steps without an end"},
        {doubled + "{{ ns.l }}", "becomes larger than 64.0 MiB"},
        {"{% set ns = namespace(d=1) %}{% for i in range(40) %}{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}{{ "
         "ns.d }}",
         "becomes larger than 64.0 MiB"},
        {"{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set y = x.replace('b', 'c') %}{% endfor %}",
         "ran 50000000 steps without an end"},
        {"{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in x %}{% endif %}{% endfor %}",
         "ran 50000000 steps without an end"},
        {"{{ ('a ' * 1000000).strip('b' * 1000000) | length }}", "ran 50000000 steps without an end"},
        {"{{ [1] | batch(2 ** 59, 0) | list }}", "becomes larger than 64.0 MiB"},
        {"{{ [[[1]]] | tojson(indent='a' * 30000000) }}", "becomes larger than 64.0 MiB"},
        {"{{ range(*([0] * 10001)) }}", "a call has more than 10000 arguments"},
        {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "more than 100 namespaces are in each other"},
        {"{{ [{}] | map(attribute='a' * 1001) | list }}", "the path of an attribute is longer than 1000 bytes"},
        {std::string(3 << 20, 'x'), "test.jinja: the template has 3.00 MiB; at most 1.00 MiB are read"}}) {
    INFO(text.substr(0, 200));
    CHECK_THAT(rendering_error(text), ContainsSubstring(message));
  }
}

TEST_CASE("what looks expensive but is not is rendered", "[jinja]") {
  CHECK(rendered(std::string(template_bytes_max, 'x')).size() == template_bytes_max);
  CHECK_THAT(rendering_error(std::string(template_bytes_max + 1, 'x')), ContainsSubstring("at most 1.00 MiB are read"));
  CHECK(rendered("{{ ('a' * 67108864) | length }}") == "67108864");
  CHECK_THAT(rendering_error("{{ ('a' * 67108865) | length }}"), ContainsSubstring("becomes larger than 64.0 MiB"));
  const jinja::Template few("t", "{{ 'a' * 63 }}");
  CHECK(few.render(Json::object(), {.limits = {.output_bytes = 63}, .now = {}}).text.size() == 63);
  CHECK_THAT(error_of([&] { few.render(Json::object(), {.limits = {.output_bytes = 62}, .now = {}}); }),
             ContainsSubstring("the output is longer than 62 bytes"));
  CHECK(rendered("{{ range(100000) | unique | list | length }}") == "100000");
  CHECK(rendered("{{ [1, 1.0, true, 'a', 'A', (1, 'b'), (1.0, 'b')] | unique | list | length }}") == "3");
  CHECK(rendered("{{ ('a ' * 1000000).rsplit() | length }}") == "1000000");
  CHECK(rendered("{{ '  a b  c '.rsplit(none, 1) }}{{ ' a b'.rsplit(none, 0) }}{{ ' a'.rsplit(none, 5) }}") ==
        "['  a b', 'c'][' a b']['a']");
  CHECK(rendered("{{ 'a,b,,c'.rsplit(',', 2) }}{{ 'aaa'.rsplit('aa') }}{{ 'a::b::c'.rpartition('::') }}") ==
        "['a,b', '', 'c']['a', '']('a::b', '::', 'c')");
  CHECK(rendered("{{ 'abcabc'.rfind('bc') }}{{ 'aaa'.rfind('aa') }}{{ 'abc'.rfind('') }}{{ 'äöä'.rfind('ä') }}") ==
        "4132");
  CHECK(rendered("{% set x = ('a' * 3000000) %}{{ (x + 'b').find(x[1:] + 'b') }}") == "1");
  CHECK_THAT(rendering_error("{{ 1" +
                             [] {
                               std::string sum;
                               for (int i = 0; i < 200000; ++i) sum += "+1";
                               return sum;
                             }() +
                             " }}"),
             ContainsSubstring("nested more than 1000 deep"));
  CHECK_THAT(rendering_error("{% filter e" +
                             [] {
                               std::string chain;
                               for (int i = 0; i < 200000; ++i) chain += "|e";
                               return chain;
                             }() +
                             " %}a{% endfilter %}"),
             ContainsSubstring("nested more than 1000 deep"));
}

TEST_CASE("a namespace that contains itself is freed", "[jinja]") {
  CHECK(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.l | length }}") == "1");
}
