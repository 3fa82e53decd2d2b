#include "runner/inference/text_stream.hpp"

#include <algorithm>
#include <span>

#include "runner/base/utf8.hpp"

namespace runner {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD, for bytes that are not a character

/// The length of the longest beginning of `stop` that `text` ends with.
size_t beginning_at_end(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.ends_with(stop.substr(0, length))) return length;
  return 0;
}

}  // namespace

size_t incomplete_utf8_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if (unicode::continues(byte)) continue;
    const size_t length = unicode::length_of(byte);
    return length > back ? back : 0;
  }
  return 0;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before, std::vector<std::string> stop)
    : tokenizer_(tokenizer), tokens_(std::move(before)), stop_(std::move(stop)) {
  // A few tokens before the text decide how its first one is decoded.
  constexpr size_t enough = 8;
  context_ = tokens_.size() > enough ? tokens_.size() - enough : 0;
  decoded_ = tokens_.size();
}

std::string TextStream::push(int32_t token) {
  tokens_.push_back(token);
  if (stopped_) return "";
  const std::span all(tokens_);
  const auto old_text = tokenizer_.decode(all.subspan(context_, decoded_ - context_), /*skip_special_tokens=*/true);
  auto text = tokenizer_.decode(all.subspan(context_), /*skip_special_tokens=*/true);
  constexpr size_t tokens_of_character_max = 8;
  const bool waits = text.ends_with(replacement) || incomplete_utf8_tail(text) > 0;
  if (waits && tokens_.size() - decoded_ < tokens_of_character_max) return "";
  std::string added = text.size() > old_text.size() ? text.substr(old_text.size()) : "";
  context_ = decoded_;
  decoded_ = tokens_.size();
  return release(added, /*all=*/false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  const std::span all(tokens_);
  const auto old_text = tokenizer_.decode(all.subspan(context_, decoded_ - context_), /*skip_special_tokens=*/true);
  const auto text = tokenizer_.decode(all.subspan(context_), /*skip_special_tokens=*/true);
  decoded_ = tokens_.size();
  return release(text.size() > old_text.size() ? text.substr(old_text.size()) : "", /*all=*/true);
}

std::string TextStream::release(std::string added, bool all) {
  waiting_ += added;
  size_t first = std::string::npos;
  for (const auto& stop : stop_) first = std::min(first, waiting_.find(stop));
  std::string safe;
  if (first != std::string::npos) {
    safe = waiting_.substr(0, first);
    waiting_.clear();
    stopped_ = true;
  } else {
    size_t held = 0;
    if (!all)
      for (const auto& stop : stop_) held = std::max(held, beginning_at_end(waiting_, stop));
    safe = waiting_.substr(0, waiting_.size() - held);
    waiting_.erase(0, safe.size());
  }
  text_ += safe;
  return safe;
}

}  // namespace runner
