// The template engine: every construct, with the output of jinja2.
#include "support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {
struct Example {
  const char *text, *expected;
};
void check(std::initializer_list<Example> examples, const std::string& variables = "{}") {
  for (auto& example : examples) {
    INFO(example.text);
    CHECK(rendered(example.text, variables) == example.expected);
  }
}
}  // namespace

TEST_CASE("white space control, comments and raw text", "[jinja]") {
  check({{"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
         {"a\n  {%+ if true %}\nb{% endif +%}\nc", "a\n  b\nc"},
         {"a \n {%- if true -%} \n b {%- endif -%} \n c", "abc"},
         {"a {{- 1 -}} b", "a1b"},
         {"  {{ 1 }}\nb", "  1\nb"},
         {"a {# no #}\nb {#- no -#} c", "a bc"},
         {"{% raw %}{{ x }}{% y %}{% endraw %}", "{{ x }}{% y %}"},
         {"a\r\nb\rc", "a\nb\nc"},
         {"{{ {'a': {'b': 1}}.a.b }}", "1"}});
}

TEST_CASE("precedence and associativity", "[jinja]") {
  check({{"{{ 1 + 2 * 3 ** 2 }}", "19"},
         {"{{ 2 ** 3 ** 2 }}", "64"},
         {"{{ -2 ** 2 }}", "4"},
         {"{{ -1 | abs }}", "1"},
         {"{{ 'a' + 1 ~ 2 + 'b' }}", "a12b"},
         {"{{ 2 * 3 ~ 4 }}", "64"},
         {"{{ not 1 == 2 }}", "True"},
         {"{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}", "TrueFalse"},
         {"{{ 1 in [1] and 2 not in [1] or false }}", "True"},
         {"{{ 'a' if false else 'b' if false else 'c' }}", "c"},
         {"[{{ 'a' if false }}]", "[]"},
         {"{{ 'x' 'y' }}", "xy"}});
}

TEST_CASE("numbers are Python's", "[jinja]") {
  check({{"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }}", "3 -4 -2 2"},
         {"{{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** -1 }} {{ 7.0 // 2 }}", "3.5 2.0 0.5 3.0"},
         {"{{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1e-5 }}",
          "1e+20 1e+16 1000000000000000.0 0.30000000000000004 1e-05"},
         {"{{ true + 1 }} {{ 1 == 1.0 }} {{ 0x1f }} {{ 1_000 }}", "2 True 31 1000"},
         {"{{ 3.7 | int }} {{ '42' | int }} {{ 'x' | int(-1) }} {{ 2.5 | round }} {{ 2.675 | round(2) }}",
          "3 42 -1 2.0 2.67"}});
}

TEST_CASE("texts count code points", "[jinja]") {
  check({{"{{ s | length }} {{ s[1] }} {{ s[::-1] }} {{ s[-2:] }} {{ s | upper }}", "5 n üßenü ßü ÜNESSÜ"},
         {"{{ 'ΑΣ' | lower }} {{ 'привет' | capitalize }} {{ \"it's a-b\" | title }}", "ας Привет It's A-B"},
         {"{{ 'Ο\u0301Σ ΟΣ\u0301Ο Ο\u2018Σ' | lower }}", "ο\u0301ς οσ\u0301ο ο\u2018ς"},
         {"{{ 'ﬁß'.upper() }} {{ 'ǆ ﬁn ǅa ᾳ'.title() }} {{ 'ა'.upper() }} {{ 'ǅ'.istitle() }} {{ 'ǅ' is upper }}",
          "FISS ǅ Fin ǅa ᾼ Ა True False"},
         {"{{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ '一'.isalnum() }} {{ '٣'.isdecimal() }}",
          "True False True True True"},
         {"{{ ['a', 'b\\n', \"it's\", 'é'] }}", "['a', 'b\\n', \"it's\", 'é']"}},
        R"({"s": "üneßü"})");
}

TEST_CASE("methods and slices", "[jinja]") {
  check(
      {{"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(None, 1) }}",
        "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c']"},
       {"{{ '</think>x</think>y'.split('</think>')[-1] }} {{ 'xxaxx'.strip('x') }}", "y a"},
       {"{{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'a-b'.replace('-', '+') }}", "True True a+b"},
       {"{{ 'a=b=c'.partition('=') }} {{ 'abcabc'.rfind('b') }} {{ '-'.join(['a', 'b']) }}", "('a', '=', 'b=c') 4 a-b"},
       {"{{ l[1:] }} {{ l[::-1] }} {{ l[-1] }} {{ l[::2] }} {{ l.index(2) }}", "[2, 3] [3, 2, 1] 3 [1, 3] 1"},
       {"{{ d.items() | list }} {{ d.get('z', 0) }} {{ d.keys() | list }} {{ d['items'] }}",
        "[('a', 1), ('items', 2)] 0 ['a', 'items'] 2"},
       {"{{ '%s has %d, %.2f, %5s|%-5s|%05d %(x)s' | replace('%(x)s', '') | format('a', 2, 0.5, 'r', 'l', 42) }}",
        "a has 2, 0.50,     r|l    |00042 "},
       {"{{ '%(k)s' % {'k': 1} }} {{ '%x' % 255 }} {{ '%s' % [1] }}", "1 ff [1]"}},
      R"({"l": [1, 2, 3], "d": {"a": 1, "items": 2}})");
}

TEST_CASE("loops", "[jinja]") {
  check(
      {{"{% for x in l %}{{ loop.index0 }}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ "
        "loop.length }};{% endfor %}",
        "013TrueFalse3;122FalseFalse3;231FalseTrue3;"},
       {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "<1>2 1<2>3 2<3> "},
       {"{% for x in l if x != 2 %}{{ x }}{{ loop.index }}{% endfor %}", "1132"},
       {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"},
       {"{% for x in [] %}a{% else %}none{% endfor %}", "none"},
       {"{% for x in l %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"},
       {"{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"},
       {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }} {% endfor %}", "Truea Falseb Truea "},
       {"{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }} "
        "{% endif %}{% endfor %}",
        "1@1 (2@2 (3@3 ))"},
       {"{% set x = 0 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "0"},
       {"{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "6"}},
      R"({"l": [1, 2, 3]})");
}

TEST_CASE("set, with, macro, call and filter blocks", "[jinja]") {
  check({{"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}<{{ a }}>{% endset %}{{ c }}{% set d | upper %}x{% endset "
          "%}{{ d }}",
          "12<1>X"},
         {"{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "211"},
         {"{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=2) }} {{ m(*[1, 2], "
          "**{'c': 3}) }}",
          "1BNone 1B2 123"},
         {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}", "1(2,){'z': 3}"},
         {"{% macro m() %}<{{ caller(7) }}>{% endmacro %}{% call(x) m() %}x={{ x }}{% endcall %}", "<x=7>"},
         {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "321"},
         {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"},
         {"{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b {% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ "
          "c.next() }}{{ c.current }}",
          "a; b 1212"},
         // Functions that outlive the variable they belong to.
         {"{% set n = cycler('aaa', 'b').next %}{{ n() }}{{ n() }}", "aaab"},
         {"{% set ns = namespace(f=0) %}{% for x in [1] %}{% set ns.f = loop.changed %}{% endfor %}{{ ns.f(1) }}{{ "
          "ns.f(1) }}",
          "TrueFalse"}});
}

TEST_CASE("a loop that has ended cannot be run again", "[jinja]") {
  CHECK_THAT(rendering_error("{% set ns = namespace(l=0) %}{% for x in [1] recursive %}{% set ns.l = loop %}{% endfor "
                             "%}{{ ns.l([2]) }}"),
             ContainsSubstring("the loop has ended"));
}

TEST_CASE("undefined values are jinja2's", "[jinja]") {
  check({{"[{{ x }}{{ d.x }}{{ l[9] }}]", "[]"},
         {"{{ x is defined }} {{ d.a is defined }} {{ x | default('D') }} {{ '' | default('D', true) }}",
          "False True D D"},
         {"{% for i in x %}a{% endfor %}{{ x | length }}{{ not x }}{{ 'a' in x }}", "0TrueFalse"},
         {"{{ x == y }} {{ 'a' ~ x }}", "True a"}},
        R"({"d": {"a": 1}, "l": []})");
  for (auto text : {"{{ x + 1 }}", "{{ x.y }}", "{{ x() }}", "{{ x['y'] }}", "{{ -x }}", "{{ x < 1 }}"})
    CHECK_THAT(rendering_error(text), ContainsSubstring("'x' is undefined"));
}

TEST_CASE("tojson is that of transformers", "[jinja]") {
  check({{"{{ v | tojson }}", "{\"b\": [1, 2.0, null, true], \"a\": \"é<\\\"\\n\", \"e\": {}}"},
         {"{{ [1, {'a': 2}] | tojson(indent=2) }}", "[\n  1,\n  {\n    \"a\": 2\n  }\n]"},
         {"{{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | "
          "tojson(sort_keys=true) }}",
          "\"\\u00e9\\ud83d\\ude00\" [1,2] {\"a\": 2, \"b\": 1}"}},
        R"({"v": {"b": [1, 2.0, null, true], "a": "é<\"\n", "e": {}}})");
}

TEST_CASE("filters of lists", "[jinja]") {
  check({{"{{ r | map(attribute='k') | join(',') }} {{ r | selectattr('v', 'gt', 1) | map(attribute='k') | list }} {{ "
          "r | rejectattr('v') | list | length }}",
          "b,A ['A'] 0"},
         {"{{ r | sort(attribute='k') | map(attribute='k') | list }} {{ [3, 1] | sort(reverse=true) }} {{ d | dictsort "
          "}}",
          "['A', 'b'] [3, 1] [('A', 2), ('b', 1)]"},
         {"{{ [1, 2, 3] | sum }} {{ [1, 2, 3] | batch(2) | list }} {{ [1, 1, 2] | unique | list }} {{ [1, 2] | first "
          "}}{{ [1, 2] | last }}",
          "6 [[1, 2], [3]] [1, 2] 12"},
         {"{{ ('<b>' | safe) + '<c>' }} {{ '<b>' | e }}", "<b>&lt;c&gt; &lt;b&gt;"}},
        R"({"r": [{"k": "b", "v": 1}, {"k": "A", "v": 2}], "d": {"b": 1, "A": 2}})");
}

TEST_CASE("strftime_now uses the given time", "[jinja]") {
  jinja::Template date("t", "{{ strftime_now('%Y') }}");
  CHECK(date.render(Json::object(), {.limits = {}, .now = std::time_t{86400 * 366}}).text == "1971");
}

TEST_CASE("generation blocks give the bytes that they wrote", "[jinja]") {
  using jinja::ByteSpan;
  auto spans = [](std::string_view text) { return jinja::Template("t", text).render(Json::object()).generated; };
  CHECK(spans("é{% generation %}ü{% endgeneration %}.{% generation %}{% endgeneration %}") ==
        std::vector<ByteSpan>{{2, 4}, {5, 5}});
  CHECK(spans("{% generation %}at the start{% endgeneration %}") == std::vector<ByteSpan>{{0, 12}});
  // Text that a macro or a set block has captured keeps its spans when it is printed as it is.
  CHECK(spans("a{% macro m() %}b{% generation %}c{% endgeneration %}{% endmacro %}{{ m() }}{{ m() }}") ==
        std::vector<ByteSpan>{{2, 3}, {4, 5}});
  CHECK(spans("{% set x %}b{% generation %}c{% endgeneration %}{% endset %}--{{ x }}") ==
        std::vector<ByteSpan>{{3, 4}});
  CHECK(jinja::Template("t", "{% set x | upper %}{% generation %}c{% endgeneration %}{% endset %}{{ x }}")
            .render(Json::object())
            .lost_generation);
}
