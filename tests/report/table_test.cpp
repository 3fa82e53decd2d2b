// Tables and times, compared character by character.
#include "runner/report/table.hpp"

#include <catch2/catch_test_macros.hpp>

#include "capture.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/terminal.hpp"

using namespace runner;

TEST_CASE("columns are as wide as their content, numbers are right-aligned, and the last column has no padding") {
  CHECK(format_table({{"NAME"}, {"STEPS", true}, {"TAGS"}}, {{"a", "12", "x"}, {"longer", "3", ""}}, 80) ==
        "NAME    STEPS  TAGS\n"
        "a          12  x\n"
        "longer      3\n");
  CHECK(format_table({{}, {"", true}}, {{"a", "1"}, {"bb", "22"}}, 80) == "a    1\nbb  22\n");
  CHECK(format_table({{"A"}}, {}, 80) == "A\n");
}

TEST_CASE("the width is counted in terminal columns, not in bytes") {
  CHECK(display_width("naïve") == 5);
  CHECK(display_width("e\xcc\x81") == 1);  // a combining accent
  CHECK(display_width("模型") == 4);
  CHECK(display_width("\xff!") == 2);
  CHECK(format_table({{"N"}, {"S", true}}, {{"模型", "1"}, {"naïve", "2"}}, 80) ==
        "N      S\n"
        "模型   1\n"
        "naïve  2\n");
}

TEST_CASE("shrinkable columns are cut until the table fits, the widest first") {
  Variable locale("LC_ALL", "C.UTF-8");
  const std::vector<Column> columns = {{"ID"}, {"NAME", false, true}, {"TAGS", false, true}};
  const std::vector<std::vector<std::string>> rows = {{"20261121", "a_rather_long_name", "night,  x"}};
  CHECK(format_table(columns, rows, 30) ==
        "ID        NAME       TAGS\n"
        "20261121  a_rather…  night,  x\n");
  CHECK(format_table(columns, rows, 5) ==
        "ID        NAME    TAGS\n"
        "20261121  a_rat…  night…\n");
  CHECK(cut_to_width("模型模型", 4) == "模…");
  CHECK(cut_to_width("abc", 3) == "abc");
  CHECK(cut_to_width("abc", 0) == "");
  Variable ascii("LC_ALL", "C");
  CHECK(cut_to_width("abcdef", 4) == "abc~");
}

TEST_CASE("long lines are broken at spaces, and what follows is indented") {
  CHECK(wrap_lines("one two three\n", 7) == "one two\nthree\n");
  CHECK(wrap_lines("  one  two\nand longer", 7, 2) == "  one\n    two\nand\n  longer");
  CHECK(wrap_lines("naïve naïve words", 11) == "naïve naïve\nwords");
  CHECK(wrap_lines("incompressible no", 4) == "incompressible\nno");
  CHECK(wrap_lines("  incompressible  ", 4, 2) == "  incompressible  ");
  CHECK(wrap_lines("one  two", 8) == "one  two");
}

TEST_CASE("control characters are shown") { CHECK(format_table({{}}, {{"a\x1b[2J\nb"}}, 80) == "a\\x1B[2J b\n"); }

TEST_CASE("the locale decides whether Unicode is used, LC_ALL first") {
  Variable all("LC_ALL", ""), type("LC_CTYPE", "de_DE.utf8"), lang("LANG", "C");
  CHECK(utf8_locale());
  Variable over("LC_ALL", "POSIX");
  CHECK_FALSE(utf8_locale());
}

TEST_CASE("times are written relative to now") {
  const double now = 1'700'000'000;
  CHECK(format_ago(now + 3, now) == "just now");
  CHECK(format_ago(now - 4, now) == "just now");
  CHECK(format_ago(now - 42, now) == "42 s ago");
  CHECK(format_ago(now - 60, now) == "1 min ago");
  CHECK(format_ago(now - 7199, now) == "1 h ago");
  CHECK(format_ago(now - 47 * 3600, now) == "47 h ago");
  CHECK(format_ago(now - 49 * 3600, now) == "2 days ago");
  CHECK(format_ago(now - 40.0 * 86400, now).starts_with("2023-10-0"));
}
