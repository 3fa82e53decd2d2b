// Text appears as soon as it is certain: characters are complete, and nothing of a stop text is printed.
#include <catch2/catch_test_macros.hpp>

#include "runner/inference/text_stream.hpp"

using namespace runner;

namespace {

/// The pieces in which a text of bytes appears.
std::vector<std::string> pieces(const std::string& text, const std::vector<std::string>& stop = {},
                                bool* stopped = nullptr) {
  const auto tokenizer = make_bytes_tokenizer();
  TextStream stream(*tokenizer, {}, stop);
  std::vector<std::string> list;
  for (const auto byte : text) {
    list.push_back(stream.push(static_cast<unsigned char>(byte)));
    if (stream.stopped()) break;
  }
  list.push_back(stream.finish());
  if (stopped) *stopped = stream.stopped();
  std::string joined;
  for (const auto& piece : list) joined += piece;
  CHECK(stream.text() == joined);
  return list;
}

std::string joined(const std::vector<std::string>& list) {
  std::string all;
  for (const auto& piece : list) all += piece;
  return all;
}

}  // namespace

TEST_CASE("a character appears when all of its bytes are there") {
  CHECK(pieces("a\xC3\xA9z") == std::vector<std::string>{"a", "", "\xC3\xA9", "z", ""});
  CHECK(pieces("\xF0\x9F\x98\x80!") == std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x80", "!", ""});
  CHECK(joined(pieces("cut \xE2\x82")) == "cut \xE2\x82");  // the end of the text
  CHECK(incomplete_utf8_tail("abc") == 0);
  CHECK(incomplete_utf8_tail("ab\xE2\x82") == 2);
  CHECK(incomplete_utf8_tail("ab\xE2\x82\xAC") == 0);
}

TEST_CASE("a text ends before a stop text that spans tokens") {
  bool stopped = false;
  CHECK(joined(pieces("one END two", {"END"}, &stopped)) == "one ");
  CHECK(stopped);
  CHECK(joined(pieces("one\nEN two", {"END", "\nEND"}, &stopped)) == "one\nEN two");
  CHECK_FALSE(stopped);
  CHECK(joined(pieces("aab", {"ab"}, &stopped)) == "a");
  CHECK(stopped);
  // The beginning of a stop text waits.
  CHECK(pieces("xEz", {"END"}) == std::vector<std::string>{"x", "", "Ez", ""});
  CHECK(pieces("xE", {"END"}) == std::vector<std::string>{"x", "", "E"});
}
