// The character map of a SentencePiece model: a trie in a double array (Aoe 1989, as Darts-clone stores it), and the texts that
// its entries become, each ended by a zero byte.
#include <cstring>

#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/tokenizers/base64.hpp"
#include "runner/tokenizers/normalizers.hpp"

namespace runner {

namespace {

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const JsonPlace& normalizer) {
    const auto place = normalizer["precompiled_charsmap"];
    const auto bytes = from_base64(place.string());
    if (!bytes) place.refuse("this is not Base64");
    uint32_t size = 0;
    if (bytes->size() >= 4) std::memcpy(&size, bytes->data(), 4);
    if (bytes->size() < 4 || size % 4 != 0 || size == 0 || size > bytes->size() - 4)
      place.refuse("this is not the character map of a SentencePiece model");
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes->data() + 4, size);
    texts_ = bytes->substr(4 + size);
    if (const auto bad = first_invalid_utf8(texts_))
      place.refuse(fmt::format("byte {} of the map's texts is not UTF-8", *bad));
    // Each character of a document may become such a text.
    for (size_t begin = 0, end = 0; begin < texts_.size(); begin = end + 1) {
      end = std::min(texts_.find('\0', begin), texts_.size());
      if (end - begin > charsmap_text_bytes_max)
        place.refuse(fmt::format("a text of the map has {} bytes; at most {} are allowed", end - begin,
                                 charsmap_text_bytes_max));
    }
  }

  void apply(Draft& draft, DraftSpace& space, bool) const override {
    auto& changes = space.changes;
    changes.clear();
    const auto text = draft.text();
    bool modified = false;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = unicode::grapheme_end(text, begin);
      constexpr size_t looked_up_bytes = 6;
      std::string_view result;
      if (end - begin < looked_up_bytes && find(text.substr(begin, end - begin), result)) {
        modified = true;
        replace(changes, text.substr(begin, end - begin), result);
        begin = end;
        continue;
      }
      while (begin < end) {
        const auto character = text.substr(begin, unicode::length_of(text[begin]));
        if (find(character, result)) {
          modified = true;
          replace(changes, character, result);
        } else {
          size_t at = begin;
          changes.push_back({unicode::next(text, at), 0});
        }
        begin += character.size();
      }
    }
    if (!modified) return;
    const TextPiece piece{0, text.size(), draft.origin_of(0)};
    draft.start();
    draft.transform(piece, changes);
    draft.finish();
  }

  bool cuts_at_space(char32_t&) const override {
    std::string_view result;
    for (char c = ' '; c <= 'z'; ++c)
      if ((c == ' ' || (c | 0x20) >= 'a') && find({&c, 1}, result) && (c == ' ' ? result != " " : !is_letter(result)))
        return false;
    return true;
  }

 private:
  static bool is_letter(std::string_view text) {
    return text.size() == 1 && (text[0] | 0x20) >= 'a' && (text[0] | 0x20) <= 'z';
  }
  /// The text that the shortest entry at the beginning of `key` becomes.
  bool find(std::string_view key, std::string_view& result) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    size_t node = offset(units_[0]);
    for (char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return false;
      node ^= byte;
      if (node >= units_.size()) return false;
      const uint32_t unit = units_[node];
      if ((unit & ((1u << 31) | 0xffu)) != byte) return false;
      node ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return false;
      const size_t at = units_[node] & ((1u << 31) - 1);
      if (at > texts_.size() || unicode::continues(texts_[at])) return false;
      result = std::string_view(texts_).substr(at);
      result = result.substr(0, result.find('\0'));
      return true;
    }
    return false;
  }
  static void replace(std::vector<unicode::Change>& changes, std::string_view old, std::string_view text) {
    const auto old_count = static_cast<ptrdiff_t>(unicode::count(old));
    const auto before = std::ssize(changes);
    for (size_t i = 0; i < text.size();) changes.push_back({unicode::next(text, i), 0});
    const auto added = std::ssize(changes) - before - old_count;
    for (ptrdiff_t i = 0; i < added; ++i) changes[changes.size() - 1 - static_cast<size_t>(i)].change = 1;
    if (added < 0 && !changes.empty()) changes.back().change += static_cast<int>(added);
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<Normalizer> read_precompiled(const JsonPlace& normalizer) {
  return std::make_unique<Precompiled>(normalizer);
}

}  // namespace runner
