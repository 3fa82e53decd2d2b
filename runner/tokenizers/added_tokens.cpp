// Tokens that are cut out of the text before the model sees it.
#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"
#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

void TokenFinder::add(const std::string& pattern, const AddedToken* token) {
  if (pattern.empty() || !patterns_.emplace(pattern, token).second) return;
  const auto first = static_cast<unsigned char>(pattern[0]);
  auto& lengths = lengths_[first];
  const auto place = std::ranges::lower_bound(lengths, pattern.size(), std::greater());
  if (place == lengths.end() || *place != pattern.size()) lengths.insert(place, pattern.size());
  index_.put(pattern, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  first_bytes_.set(first);
}

const AddedToken* TokenFinder::token_at(std::string_view text, size_t begin, size_t& end) const {
  for (size_t length : lengths_[static_cast<unsigned char>(text[begin])]) {
    if (length > text.size() - begin) continue;
    if (const int32_t index = index_.find(text.substr(begin, length)); index >= 0) {
      end = begin + length;
      return tokens_[static_cast<size_t>(index)];
    }
  }
  return nullptr;
}

void TokenFinder::find(std::string_view text, std::vector<TextSection>& out) const {
  size_t last = 0;
  for (size_t i = 0; i < text.size();) {
    if (!first_bytes_[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    size_t begin = i, end = 0;
    const AddedToken* token = token_at(text, begin, end);
    if (!token) {
      ++i;
      continue;
    }
    i = end;
    if (token->single_word) {
      size_t before = begin > 0 ? unicode::previous(text, begin) : 0, after = end;
      if (begin > 0 && unicode::is_word(unicode::next(text, before))) continue;
      if (end < text.size() && unicode::is_word(unicode::next(text, after))) continue;
    }
    if (token->lstrip)
      while (begin > last) {
        size_t at = unicode::previous(text, begin);
        const size_t character = at;
        if (!unicode::is_space(unicode::next(text, at))) break;
        begin = character;
      }
    if (token->rstrip)
      while (end < text.size()) {
        size_t after = end;
        if (!unicode::is_space(unicode::next(text, after))) break;
        end = after;
      }
    if (last < begin) out.push_back({last, begin, nullptr});
    out.push_back({begin, end, token});
    last = end;
  }
  if (last < text.size()) out.push_back({last, text.size(), nullptr});
}

void AddedTokens::read(const JsonPlace& list, const TokenModel& model, const Normalizer* normalizer) {
  for (const auto& item : list.items()) {
    AddedToken token{.id = static_cast<int32_t>(item["id"].integer(0, int64_t{1} << 28)),
                     .content = item["content"].string(),
                     .single_word = item.boolean_or("single_word", false),
                     .lstrip = item.boolean_or("lstrip", false),
                     .rstrip = item.boolean_or("rstrip", false),
                     .normalized = item.boolean_or("normalized", true),
                     .special = item.boolean_or("special", false)};
    if (token.content.empty()) continue;
    if (token.content.size() > token_bytes_max) item["content"].refuse(too_long_token(token.content));
    const int32_t wanted = token.id;
    const std::string content = token.content;
    add(std::move(token), model);
    if (const auto id = find(content); id && *id != wanted)
      item["id"].refuse(
          fmt::format("the token \"{}\" would have id {}: the id must be that of the model's vocabulary, or the "
                      "next free one",
                      shortened_text(content), *id));
  }
  finish(normalizer);
}

void AddedTokens::add(AddedToken token, const TokenModel& model) {
  auto id = find(token.content);
  if (!id) id = model.token_to_id(token.content);
  if (!id) {
    const auto size = static_cast<int32_t>(model.size());
    const int32_t most = id_end() - 1;
    id = most >= size || (size == 0 && most >= 0) ? most + 1 : size;
  }
  token.id = *id;
  put(std::move(token));
}

void AddedTokens::put(AddedToken token) {
  const int32_t id = token.id;
  ids_[token.content] = id;
  by_id_[id] = std::move(token);
}

void AddedTokens::finish(const Normalizer* normalizer) {
  Draft draft;
  DraftSpace space;
  for (const auto& [id, token] : by_id_) {
    if (!token.normalized) {
      raw_.add(token.content, &token);
      continue;
    }
    draft.reset(token.content, 0, false);
    if (normalizer) normalizer->apply(draft, space, false);
    normalized_.add(std::string(draft.text()), &token);
  }
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
  auto found = ids_.find(std::string(content));
  return found != ids_.end() ? std::optional(found->second) : std::nullopt;
}

const AddedToken* AddedTokens::token(int32_t id) const {
  auto found = by_id_.find(id);
  return found != by_id_.end() ? &found->second : nullptr;
}

int32_t AddedTokens::id_end() const { return by_id_.empty() ? 0 : by_id_.rbegin()->first + 1; }

bool AddedTokens::is_special(int32_t id) const {
  const auto* found = token(id);
  return found && found->special;
}

}  // namespace runner
