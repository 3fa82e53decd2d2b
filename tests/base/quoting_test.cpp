// Text of strangers inside other languages.
#include "runner/base/quoting.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/base/capture.hpp"

using namespace runner;

TEST_CASE("a shell reads each word back as it was") {
  const std::vector<std::string> words = {"printf", "%s|",          "plain-1.5/x", "a b",  "", "it's",
                                          "$HOME",  "`touch gone`", "a\nb",        "&<b>", "ü"};
  std::string expected;
  for (size_t i = 2; i < words.size(); ++i) expected += words[i] + "|";
  CHECK(capture({"sh", "-c", shell_words(words)}, {.timeout = std::chrono::seconds(10)}).output == expected);
  CHECK(shell_word("run.name=näme mit space") == "'run.name=näme mit space'");
}

TEST_CASE("strings of gnuplot have single quotes and one line") {
  CHECK(gnuplot_string("a`id`\"b\\") == "'a`id`\"b\\'");
  CHECK(gnuplot_string("it's\nEND_OF_DATA") == "'it''s END_OF_DATA'");
}

TEST_CASE("cells of CSV are quoted, and are no formulas") {
  CHECK(csv_cell("a,b") == "\"a,b\"");
  CHECK(csv_cell("a \"b\"\n") == "\"a \"\"b\"\"\n\"");
  CHECK(csv_cell("=HYPERLINK(\"x\")") == "\"'=HYPERLINK(\"\"x\"\")\"");
  CHECK(csv_cell("@sum") == "'@sum");
  CHECK(csv_cell("+cmd|x") == "'+cmd|x");
  CHECK(csv_cell("-1+1") == "'-1+1");
  for (const char* plain : {"-0.5", "+3", "-inf", "-1e-7", "-", "=", "a=b", "", "nan"}) CHECK(csv_cell(plain) == plain);
}

TEST_CASE("terminals get no control characters, and none that turn the direction of writing") {
  CHECK(terminal_text("a\x1b[31m\x7f\rb") == "a\\x1B[31m\\x7F\\x0Db");
  CHECK(terminal_text("a\tb\nc") == "a\tb\nc");
  CHECK(one_line("a\tb\r\nc") == "a b  c");
  CHECK(terminal_text("\xc2\x9b"
                      "31m") == "\\x9B31m");
  CHECK(terminal_text("exe\xe2\x80\xaegpj") == "exe\\u202Egpj");
  CHECK(terminal_text("\xe2\x81\xa6x\xe2\x81\xa9") == "\\u2066x\\u2069");
  CHECK(terminal_text("caf\xe9") == "caf\\xE9");
  const std::string plain = "模型 é \xc2\xa0 €\xe2\x80\x99 😀";
  CHECK(terminal_text(plain) == plain);
}
