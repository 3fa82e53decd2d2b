// Byte pair encoding: joins the pair of neighbours whose merge was learned first, again and again.
#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/tokenizers/byte_characters.hpp"
#include "runner/tokenizers/models.hpp"

namespace runner {

namespace {

class Bpe final : public TokenModel {
 public:
  explicit Bpe(const JsonPlace& model)
      : TokenModel(Vocabulary(model["vocab"])),
        unknown_text_(model.string_or("unk_token", "")),
        prefix_(model.string_or("continuing_subword_prefix", "")),
        suffix_(model.string_or("end_of_word_suffix", "")),
        fuse_unknown_(model.boolean_or("fuse_unk", false)),
        byte_fallback_(model.boolean_or("byte_fallback", false)),
        ignore_merges_(model.boolean_or("ignore_merges", false)) {
    if (model.has("dropout") && model["dropout"].number() != 0)
      model["dropout"].refuse("dropout of merges is not supported: the same text must always have the same tokens");
    if (!unknown_text_.empty()) {
      unknown_ = vocabulary_.find(unknown_text_);
      if (unknown_ < 0)
        model["unk_token"].refuse(fmt::format("\"{}\" is not in the vocabulary", shortened_text(unknown_text_)));
    }
    const auto merges = model["merges"];
    if (!merges.json().is_array()) merges.refuse("the merges must be a list");
    merges_.reserve(merges.json().size());
    for (size_t rank = 0; rank < merges.json().size(); ++rank) {
      const auto& item = merges.json()[rank];
      if (item.is_string()) {
        const auto& text = item.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          merges.at(rank).refuse(
              fmt::format("\"{}\" instead of two tokens with a space between them", shortened_text(text)));
        add_merge(std::string_view(text).substr(0, space), std::string_view(text).substr(space + 1), rank,
                  [&](const std::string& reason) { merges.at(rank).refuse(reason); });
      } else {
        const auto pair = merges.at(rank);
        if (item.size() != 2) pair.refuse("a merge must have two tokens");
        add_merge(pair.at(0).string(), pair.at(1).string(), rank,
                  [&](const std::string& reason) { pair.refuse(reason); });
      }
    }
    finish();
  }

  explicit Bpe(const BpeParts& parts) : ignore_merges_(parts.ignore_merges) {
    for (const auto& [token, id] : parts.vocabulary) vocabulary_.put(token, id);
    merges_.reserve(parts.merges.size());
    for (size_t rank = 0; rank < parts.merges.size(); ++rank)
      add_merge(parts.merges[rank].first, parts.merges[rank].second, rank,
                [](const std::string& reason) { throw usage_error("{}", reason); });
    finish();
  }

  void tokenize(std::string_view word, ModelSpace& space, std::vector<Token>& out) const override {
    if (ignore_merges_)
      if (const int32_t id = words_.find(word); id >= 0) {
        out.push_back({id, 0, word.size()});
        return;
      }
    space.cache.append(word, out, [&] { tokenize_anew(word, space, out); });
  }

  std::optional<std::string> unknown_token() const override {
    return unknown_ >= 0 ? std::optional(unknown_text_) : std::nullopt;
  }

  bool take_bytes() override {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string character;
      unicode::append(character, byte_characters()[byte]);
      byte_ids_[byte] = vocabulary_.find(character);
      if (byte_ids_[byte] < 0) return false;
    }
    bytes_taken_ = true;
    fill_words();
    return true;
  }

  bool separates(char32_t left, char32_t right) const override {
    if (ignore_merges_ || !prefix_.empty() || !suffix_.empty() || fuse_unknown_inside(left)) return false;
    std::string pair;
    unicode::append(pair, left);
    unicode::append(pair, right);
    return std::ranges::none_of(vocabulary_.tokens(),
                                [&](const auto& token) { return token && token->find(pair) != std::string::npos; });
  }

 private:
  using Symbol = ModelSpace::Symbol;

  template <typename Refuse>
  void add_merge(std::string_view left, std::string_view right, size_t rank, Refuse&& refuse) {
    const auto id_of = [&](std::string_view token) {
      const int32_t id = vocabulary_.find(token);
      if (id < 0) refuse(fmt::format("the token \"{}\" is not in the vocabulary", shortened_text(std::string(token))));
      return id;
    };
    std::string joined(left);
    joined += right.substr(std::min(prefix_.size(), right.size()));
    const int32_t left_id = id_of(left), right_id = id_of(right);
    merges_.put(left_id, right_id, {static_cast<uint32_t>(rank), id_of(joined)});
  }

  void finish() {
    for (size_t byte = 0; byte < 256; ++byte) fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    fill_words();
  }
  /// Words that are taken whole, as the model receives them.
  void fill_words() {
    words_ = {};
    if (!ignore_merges_) return;
    words_.reserve(static_cast<size_t>(vocabulary_.size()));
    for (int32_t id = 0; id < vocabulary_.id_end(); ++id)
      if (const auto* token = vocabulary_.token(id)) {
        if (!bytes_taken_)
          words_.put(*token, id);
        else if (auto bytes = bytes_of(*token))
          words_.put(*bytes, id);
      }
  }
  /// Unknown characters on both sides of a cut would become one token.
  bool fuse_unknown_inside(char32_t left) const {
    std::string character;
    unicode::append(character, left);
    return vocabulary_.find(character) < 0;
  }

  void tokenize_anew(std::string_view word, ModelSpace& space, std::vector<Token>& out) const {
    if (bytes_taken_)
      begin_with_bytes(word, space);
    else
      begin_with_characters(word, space);
    constexpr size_t scanned_symbols_max = 48;
    if (space.symbols.size() <= scanned_symbols_max)
      merge_by_scanning(space);
    else
      merge_by_queue(space);
    size_t at = 0;
    for (const auto& symbol : space.symbols)
      if (symbol.size > 0) {
        out.push_back({symbol.id, at, at + symbol.size});
        at += symbol.size;
      }
  }
  static void add(ModelSpace& space, int32_t id, size_t size) {
    const auto at = static_cast<int32_t>(space.symbols.size());
    space.symbols.push_back({id, at - 1, at + 1, static_cast<uint32_t>(size)});
  }
  void begin_with_bytes(std::string_view word, ModelSpace& space) const {
    space.symbols.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i)
      space.symbols[i] = {byte_ids_[static_cast<unsigned char>(word[i])], static_cast<int32_t>(i) - 1,
                          static_cast<int32_t>(i) + 1, 1};
  }
  void begin_with_characters(std::string_view word, ModelSpace& space) const {
    space.symbols.clear();
    size_t unknown_size = 0;  // of the unknown text before this character
    const auto end_unknown = [&] {
      if (unknown_size > 0) add(space, unknown_, unknown_size);
      unknown_size = 0;
    };
    for (size_t begin = 0; begin < word.size();) {
      const size_t size = unicode::length_of(word[begin]), end = begin + size;
      std::string_view symbol = word.substr(begin, size);
      const bool prefixed = begin > 0 && !prefix_.empty(), suffixed = end == word.size() && !suffix_.empty();
      if (prefixed || suffixed) {
        space.text = prefixed ? prefix_ : "";
        space.text += symbol;
        if (suffixed) space.text += suffix_;
        symbol = space.text;
      }
      begin = end;
      if (const int32_t id = vocabulary_.find(symbol); id >= 0) {
        end_unknown();
        add(space, id, size);
      } else if (byte_fallback_ &&
                 std::ranges::all_of(symbol, [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; })) {
        // The library leaves unknown text before the bytes in place after them.
        for (char c : symbol) add(space, fallback_[static_cast<unsigned char>(c)], 1);
      } else if (unknown_ >= 0) {
        if (!fuse_unknown_) end_unknown();
        unknown_size += size;
      }
    }
    end_unknown();
    if (!space.symbols.empty()) space.symbols.back().next = static_cast<int32_t>(space.symbols.size());
  }

  /// For short words: finds the lowest rank among all pairs before each merge.
  void merge_by_scanning(ModelSpace& space) const {
    auto& symbols = space.symbols;
    auto& pairs = space.pairs;
    const size_t count = symbols.size();
    pairs.resize(count);
    for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(symbols[i].id, symbols[i + 1].id);
    size_t left = count;
    while (left > 1) {
      size_t best = 0;
      uint32_t rank = Merges::none;
      for (size_t i = 0; i + 1 < left; ++i)
        if (pairs[i].rank < rank) {
          rank = pairs[i].rank;
          best = i;
        }
      if (rank == Merges::none) break;
      symbols[best].id = pairs[best].id;
      symbols[best].size += symbols[best + 1].size;
      for (size_t i = best + 1; i + 1 < left; ++i) {
        symbols[i] = symbols[i + 1];
        pairs[i] = pairs[i + 1];
      }
      --left;
      if (best > 0) pairs[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
      if (best + 1 < left) pairs[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
    }
    symbols.resize(left);
  }

  /// For long words: a queue of candidates, of which those that no longer apply are skipped.
  void merge_by_queue(ModelSpace& space) const {
    auto& symbols = space.symbols;
    auto& queue = space.queue;
    const auto count = static_cast<int32_t>(symbols.size());
    const auto later = [](const ModelSpace::Candidate& a, const ModelSpace::Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
    queue.clear();
    const auto offer = [&](int32_t at, int32_t next) {
      const auto merge = merges_.find(symbol(at).id, symbol(next).id);
      if (merge.rank != Merges::none) queue.push_back({merge.rank, at, merge.id});
      return merge.rank != Merges::none;
    };
    for (int32_t i = 0; i + 1 < count; ++i) offer(i, i + 1);
    std::ranges::make_heap(queue, later);
    while (!queue.empty()) {
      const auto top = queue.front();
      std::ranges::pop_heap(queue, later);
      queue.pop_back();
      if (symbol(top.at).size == 0 || symbol(top.at).next >= count) continue;
      const int32_t next = symbol(top.at).next;
      const auto merge = merges_.find(symbol(top.at).id, symbol(next).id);
      if (merge.rank == Merges::none || merge.id != top.id) continue;
      symbol(top.at).id = merge.id;
      symbol(top.at).size += symbol(next).size;
      symbol(top.at).next = symbol(next).next;
      symbol(next).size = 0;
      if (symbol(next).next < count) symbol(symbol(next).next).previous = top.at;
      if (symbol(top.at).previous >= 0 && offer(symbol(top.at).previous, top.at)) std::ranges::push_heap(queue, later);
      if (symbol(top.at).next < count && offer(top.at, symbol(top.at).next)) std::ranges::push_heap(queue, later);
    }
  }

  Merges merges_;
  StringIds words_;  ///< with ignore_merges
  std::string unknown_text_, prefix_, suffix_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false, bytes_taken_ = false;
  int32_t unknown_ = -1;
  int32_t byte_ids_[256], fallback_[256];
};

}  // namespace

std::unique_ptr<TokenModel> read_bpe(const JsonPlace& model) { return std::make_unique<Bpe>(model); }
std::unique_ptr<TokenModel> make_bpe(const BpeParts& parts) { return std::make_unique<Bpe>(parts); }

}  // namespace runner
