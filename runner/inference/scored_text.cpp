#include "runner/inference/scored_text.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// The bytes of a white space character of Python's `re` at the beginning of `text`; 0: there is none.
size_t white_space(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte == ' ' || (byte >= 0x09 && byte <= 0x0D) || (byte >= 0x1C && byte <= 0x1F)) return 1;
  if (text.starts_with("\xC2\x85") || text.starts_with("\xC2\xA0")) return 2;
  for (const char* wide :
       {"\xE1\x9A\x80", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"})
    if (text.starts_with(wide)) return 3;
  // U+2000 to U+200A
  if (text.size() >= 3 && text.starts_with("\xE2\x80")) {
    const auto last = static_cast<unsigned char>(text[2]);
    if (last >= 0x80 && last <= 0x8A) return 3;
  }
  return 0;
}

}  // namespace

int32_t first_token(const Tokenizer& tokenizer) {
  const auto roles = tokenizer.special_tokens();
  return roles.bos ? *roles.bos : roles.eos.value_or(0);
}

ScoredTokens encode_pair(const Tokenizer& tokenizer, std::string context, std::string continuation) {
  size_t end = context.size();
  while (end > 0 && white_space(std::string_view(context).substr(end - 1)) == 1) --end;
  continuation = context.substr(end) + continuation;
  context.resize(end);
  ScoredTokens pair;
  if (context.empty()) {
    pair.continuation = tokenizer.encode(continuation);
    const int32_t first = first_token(tokenizer);
    if (pair.continuation.empty() || pair.continuation.front() != first) {
      pair.context = {first};
    } else {
      pair.context = {first};
      pair.continuation.erase(pair.continuation.begin());
    }
    return pair;
  }
  const auto whole = tokenizer.encode(context + continuation);
  const auto cut = std::min(tokenizer.encode(context).size(), whole.size());
  pair.context.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(cut));
  pair.continuation.assign(whole.begin() + static_cast<ptrdiff_t>(cut), whole.end());
  return pair;
}

std::vector<ScoredTokens> rolling_windows(const std::vector<int32_t>& tokens, int32_t first, int64_t length,
                                          int64_t context) {
  RUNNER_CHECK(context >= 1 && context <= length);
  std::vector<ScoredTokens> windows;
  const auto count = std::ssize(tokens), most = length - context + 1;
  const auto slice = [&](int64_t begin, int64_t end) {
    return std::vector<int32_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  if (count == 0) return windows;
  int64_t predicted = std::min(length, count);
  windows.push_back({.context = {first}, .continuation = slice(0, predicted)});
  while (predicted < count) {
    const int64_t end = predicted + std::min(count - predicted, most);
    // A window has `length` inputs and one token more, because its last token is only a target.
    windows.push_back(
        {.context = slice(std::max<int64_t>(0, end - length - 1), predicted), .continuation = slice(predicted, end)});
    predicted = end;
  }
  return windows;
}

ModelRow row_of(const ScoredTokens& scored, int64_t length) {
  std::vector<int64_t> all(scored.context.begin(), scored.context.end());
  all.insert(all.end(), scored.continuation.begin(), scored.continuation.end());
  if (std::ssize(all) > length + 1) all.erase(all.begin(), all.end() - (length + 1));
  ModelRow row;
  row.inputs.assign(all.begin(), all.end() - 1);
  row.targets.assign(all.begin() + 1, all.end());
  const auto scored_targets = std::min(std::ssize(scored.continuation), std::ssize(row.targets));
  std::fill(row.targets.begin(), row.targets.end() - scored_targets, ignored_target);
  return row;
}

void TextSizes::add(std::string_view text) {
  words += count_words(text);
  bytes += std::ssize(text);
}

int64_t count_words(std::string_view text) {
  int64_t words = 1;
  bool in_space = false;
  while (!text.empty()) {
    const size_t space = white_space(text);
    if (space > 0 && !in_space) ++words;
    in_space = space > 0;
    text.remove_prefix(std::max<size_t>(space, 1));
  }
  return words;
}

}  // namespace runner
