// The translation of regular expressions, and their matches.
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <vector>

#include "runner/base/limits.hpp"
#include "runner/tokenizers/regex.hpp"

using runner::PatternTime;
using runner::Regex;

namespace {

std::vector<std::string> matches_of(const std::string& expression, const std::string& text, PatternTime time) {
  std::vector<std::string> found;
  Regex(expression).split(text, time, [&](size_t begin, size_t end, bool is_match) {
    if (is_match) found.push_back(text.substr(begin, end - begin));
  });
  return found;
}

std::vector<std::string> matches_of(const std::string& expression, const std::string& text) {
  return matches_of(expression, text, PatternTime(text.size()));
}

std::string mistake_of(const std::string& expression) {
  try {
    Regex{expression};
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

using Found = std::vector<std::string>;

}  // namespace

TEST_CASE("classes of characters are those of Oniguruma") {
  CHECK(matches_of(R"(\s)", "a \u00a0\u180e\u3000\n") == Found{" ", "\u00a0", "\u3000", "\n"});
  CHECK(matches_of(R"([^\S\n]+)", "a \n \u180e") == Found{" ", " "});
  CHECK(matches_of(R"([\S]+)", "a\u180e b") == Found{"a\u180e", "b"});
  CHECK(matches_of(R"(\w+)", "é²_①-x") == Found{"é²_", "x"});
  CHECK(matches_of(R"([\w]+)", "é²_") == Found{"é", "_"});
  CHECK(matches_of(R"(\h+)", "12fG") == Found{"12f"});
  CHECK(matches_of(R"(\p{Han}+)", "中文 ー々") == Found{"中文", "々"});
  CHECK(matches_of(R"(\p{^L})", "a1") == Found{"1"});
  CHECK(matches_of(R"(\bé)", "é aé é") == Found{"é", "é"});
}

TEST_CASE("quantifiers and anchors are those of Oniguruma") {
  CHECK(matches_of(R"(\d{1,2}+)", "12345") == Found{"12345"});
  CHECK(matches_of(R"(a{,2})", "aaa") == Found{"aa", "a"});
  CHECK(matches_of(R"((?:ab){2}+)", "abababab") == Found{"abababab"});
  CHECK(matches_of("^b", "a\nb") == Found{"b"});
  CHECK(matches_of("a{b", "a{b") == Found{"a{b"});
  CHECK(matches_of("x*", "axb") == Found{"", "x", ""});
  CHECK(matches_of(R"((?i:'S)|\x{61}|\u0062)", "'ſab") == Found{"'ſ", "a", "b"});
}

TEST_CASE("the steps and the size of an expression are bounded") {
  size_t begin = 0, end = 0;
  PatternTime time;
  const Regex slow("(a+)+$");
  CHECK(slow.find(std::string(15, 'a'), 0, begin, end, time));
  CHECK_THROWS_WITH(slow.find(std::string(60, 'a') + "b", 0, begin, end, time),
                    "a regular expression of the tokenizer failed: match limit exceeded");
  CHECK(mistake_of("[" + std::string(pattern_bytes_max - 2, 'a') + "]").empty());
  CHECK(mistake_of("[" + std::string(pattern_bytes_max - 1, 'a') + "]") ==
        "pattern string is longer than the limit set by the application");
  CHECK(mistake_of(std::string(250, '(') + "a" + std::string(250, ')')).empty());
  CHECK(mistake_of(std::string(251, '(') + "a" + std::string(251, ')')) == "parentheses are too deeply nested");
  CHECK(mistake_of(std::string(60000, '(')) == "a group without its end at offset 60000 is not supported");
}

TEST_CASE("a match that begins far away is found, with what is in front of it") {
  const std::string far(1000, 'a');
  std::string accents;
  for (int i = 0; i < 500; ++i) accents += "é";
  CHECK(matches_of("b+", far + "bb") == Found{"bb"});
  CHECK(matches_of("(?<=^a{64})a", far) == Found{"a"});
  CHECK(matches_of("\\Aa|b", far + "b") == Found{"a", "b"});
  CHECK(matches_of("$", far) == Found{""});
  CHECK(matches_of("b|$", accents) == Found{""});
  CHECK(matches_of("(?<=é)x", "x" + accents + "x") == Found{"x"});
  CHECK(matches_of("(?:a|aa){1,12}[bc]", far.substr(0, 100) + "c").size() == 1);  // many steps at each place
}

TEST_CASE("the time of the searches in one text is bounded") {
  CHECK_THROWS_WITH(matches_of("(?:a|aa){1,18}[bc]", std::string(20'000, 'a')),
                    "a regular expression of the tokenizer takes too long: more than 1.2 s of processor time for a "
                    "text of 19.5 KiB");
  CHECK_THROWS_WITH(matches_of("(a+)+$", std::string(60, 'a') + "b", PatternTime(61, "the expression of --grep")),
                    "the expression of --grep failed: match limit exceeded");
}

TEST_CASE("what has no equivalent is refused with its place") {
  CHECK(mistake_of(R"(a[b&&c])") == "`&&` in a class at offset 3 is not supported");
  CHECK(mistake_of(R"([a[b]])") == "a class inside a class at offset 2 is not supported");
  CHECK(mistake_of(R"([[:alpha:]])") == "`[:alpha:]` at offset 1 is not supported");
  CHECK(mistake_of(R"((?m:.))") == "`(?m:` at offset 0 is not supported");
  CHECK(mistake_of(R"(ab\R)") == "`\\R` at offset 2 is not supported");
  CHECK(mistake_of(R"(\1)") == "`\\1` at offset 0 is not supported");
  CHECK(mistake_of("(a") == "a group without its end at offset 2 is not supported");
  CHECK(mistake_of("a)") == "a `)` without its beginning at offset 1 is not supported");
  CHECK(mistake_of("[a") == "a class without its end at offset 0 is not supported");
  CHECK(mistake_of(R"(\p{Latn)") == "`\\p{` without its end at offset 0 is not supported");
  CHECK(!mistake_of(R"(\p{NoSuchScript})").empty());
}
