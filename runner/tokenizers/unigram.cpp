// Unigram: the most probable sequence of tokens, found with Viterbi's algorithm.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runner/base/limits.hpp"
#include "runner/tokenizers/models.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

/// The number that the tokenizers library reads from the text of `number`: digits and a power of ten are converted by themselves,
/// so the last bit may differ. It decides between sequences of equal probability.
double library_number(double number) {
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, std::abs(number), std::chars_format::scientific);
  uint64_t digits = 0;
  int exponent = 0;
  for (const char* c = text; c != written.ptr; ++c) {
    if (*c == 'e') {
      int power = 0;
      std::from_chars(c[1] == '+' ? c + 2 : c + 1, written.ptr, power);
      exponent += power;
      break;
    }
    if (*c == '.') {
      const char* end = std::find(c, static_cast<const char*>(written.ptr), 'e');
      exponent -= static_cast<int>(end - c) - 1;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(*c - '0');
    }
  }
  const double power = std::pow(10.0, std::abs(exponent));
  const double value = exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return number < 0 ? -value : value;
}

/// Byte strings, for all that begin at a place of a text.
class Trie {
 public:
  void build(const std::vector<std::pair<std::string, int32_t>>& sorted) {
    nodes_.push_back({});
    add(0, 0, std::span(sorted));
  }
  /// Calls `found(length, id)` for each string at the beginning of `text`, the shortest first.
  template <typename Found>
  void search(std::string_view text, Found&& found) const {
    size_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id >= 0) found(i + 1, nodes_[node].id);
    }
  }

 private:
  struct Node {
    uint32_t first = 0;  ///< of the children in edges_
    uint32_t count = 0;
    int32_t id = -1;
  };
  struct Edge {
    unsigned char label;
    uint32_t node;
  };
  size_t child(size_t node, unsigned char label) const {
    if (node == 0) return root_[label];
    const Edge* edges = edges_.data() + nodes_[node].first;
    uint32_t low = 0, high = nodes_[node].count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (edges[middle].label < label)
        low = middle + 1;
      else
        high = middle;
    }
    return low < nodes_[node].count && edges[low].label == label ? edges[low].node : 0;
  }
  void add(size_t node, size_t depth, std::span<const std::pair<std::string, int32_t>> list) {
    while (!list.empty() && list.front().first.size() == depth) {
      nodes_[node].id = list.front().second;
      list = list.subspan(1);
    }
    std::vector<std::pair<unsigned char, std::span<const std::pair<std::string, int32_t>>>> groups;
    while (!list.empty()) {
      const char label = list.front().first[depth];
      size_t size = 1;
      while (size < list.size() && list[size].first[depth] == label) ++size;
      groups.emplace_back(static_cast<unsigned char>(label), list.first(size));
      list = list.subspan(size);
    }
    const size_t first = edges_.size();
    nodes_[node].first = static_cast<uint32_t>(first);
    nodes_[node].count = static_cast<uint32_t>(groups.size());
    for (const auto& [label, group] : groups) {
      edges_.push_back({label, static_cast<uint32_t>(nodes_.size())});
      nodes_.push_back({});
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      if (node == 0) root_[groups[i].first] = edges_[first + i].node;
      add(edges_[first + i].node, depth + 1, groups[i].second);
    }
  }
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  uint32_t root_[256] = {};
};

class Unigram final : public TokenModel {
 public:
  explicit Unigram(const JsonPlace& model) : byte_fallback_(model.boolean_or("byte_fallback", false)) {
    double least = std::numeric_limits<double>::infinity();
    std::vector<std::pair<std::string, int32_t>> sorted;
    for (const auto& item : model["vocab"].items()) {
      const auto id = static_cast<int32_t>(scores_.size());
      const auto token = item.at(0).string();
      if (token.size() > token_bytes_max) item.at(0).refuse(too_long_token(token));
      scores_.push_back(library_number(item.at(1).number()));
      least = std::min(least, scores_.back());
      vocabulary_.put(token, id);
    }
    for (int32_t id = 0; id < vocabulary_.id_end(); ++id) {
      const auto& token = *vocabulary_.token(id);
      if (!token.empty()) sorted.emplace_back(token, vocabulary_.find(token));
    }
    if (scores_.empty()) model["vocab"].refuse("the vocabulary is empty");
    std::ranges::sort(sorted);
    trie_.build(sorted);
    constexpr double unknown_penalty = 10;
    unknown_score_ = least - unknown_penalty;
    if (model.has("unk_id"))
      unknown_ = static_cast<int32_t>(model["unk_id"].integer(0, static_cast<int64_t>(scores_.size()) - 1));
    for (int byte = 0; byte < 256; ++byte) bytes_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }

  void tokenize(std::string_view word, ModelSpace& space, std::vector<Token>& out) const override {
    space.cache.append(word, out, [&] {
      best_path(word, space);
      trace_back(word, space, out);
    });
  }
  int64_t size() const override { return std::ssize(scores_); }
  std::optional<std::string> unknown_token() const override {
    const auto* token = vocabulary_.token(unknown_);
    return token ? std::optional(*token) : std::nullopt;
  }

 private:
  void best_path(std::string_view word, ModelSpace& space) const {
    auto& nodes = space.nodes;
    nodes.assign(word.size() + 1, {0, -1, 0});
    for (size_t begin = 0; begin < word.size();) {
      const double score = nodes[begin].score;
      const size_t character = unicode::length_of(word[begin]);
      bool single = false;
      const auto offer = [&](size_t length, double own_score, int32_t id) {
        auto& node = nodes[begin + length];
        if (node.begin >= 0 && own_score + score <= node.score) return;
        node = {own_score + score, static_cast<int64_t>(begin), id};
      };
      trie_.search(word.substr(begin), [&](size_t length, int32_t id) {
        offer(length, scores_[static_cast<size_t>(id)], id);
        single |= length == character;
      });
      if (!single) {
        if (unknown_ < 0)
          throw usage_error("the tokenizer has no token for \"{}\", and no token for unknown text",
                            word.substr(begin, character));
        offer(character, unknown_score_, unknown_);
      }
      begin += character;
    }
  }

  /// Unknown characters next to each other become one token, or the bytes of their text.
  void trace_back(std::string_view word, ModelSpace& space, std::vector<Token>& out) const {
    auto& pieces = space.tokens;
    pieces.clear();
    for (size_t end = word.size(); end > 0;) {
      const auto& node = space.nodes[end];
      const auto begin = static_cast<size_t>(node.begin);
      if (node.id == unknown_ && !pieces.empty() && pieces.back().id == -1)
        pieces.back().begin = begin;
      else
        pieces.push_back({node.id == unknown_ ? -1 : node.id, begin, end});
      end = begin;
    }
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
      const auto text = word.substr(piece->begin, piece->end - piece->begin);
      int32_t id = piece->id >= 0 ? piece->id : vocabulary_.find(text);
      if (id < 0 && add_bytes(text, *piece, out)) continue;
      out.push_back({id >= 0 ? id : unknown_, piece->begin, piece->end});
    }
  }
  bool add_bytes(std::string_view text, const Token& piece, std::vector<Token>& out) const {
    if (!byte_fallback_) return false;
    for (char c : text)
      if (bytes_[static_cast<unsigned char>(c)] < 0) return false;
    for (char c : text) out.push_back({bytes_[static_cast<unsigned char>(c)], piece.begin, piece.end});
    return true;
  }

  std::vector<double> scores_;
  Trie trie_;
  bool byte_fallback_;
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  int32_t bytes_[256];
};

}  // namespace

std::unique_ptr<TokenModel> read_unigram(const JsonPlace& model) { return std::make_unique<Unigram>(model); }

}  // namespace runner
