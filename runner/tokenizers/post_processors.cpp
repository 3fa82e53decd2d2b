#include "runner/tokenizers/post_processors.hpp"

#include <algorithm>

#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

/// Leaves out the spaces at the ends of tokens: the offsets are those of the words. One leading space at the beginning of the text
/// stays, if the tokenizer added it there.
void trim(std::string_view text, std::vector<Encoded>& tokens, bool prefix_space) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto& [token, leading, trailing] = tokens[i];
    uint32_t skipped = leading;
    if ((i == 0 || token.begin == 0) && prefix_space && leading == 1) skipped = 0;
    for (; skipped > 0 && token.begin < token.end; --skipped) token.begin += unicode::length_of(text[token.begin]);
    token.begin = std::min(token.begin, token.end);
    size_t end = token.end;
    uint32_t left = trailing;
    for (; left > 0 && end > 0; --left) end = unicode::previous(text, end);
    if (left == 0) token.end = std::max(end, token.begin);
  }
}

/// Ids before and after the text.
class Frame final : public PostProcessor {
 public:
  Frame(std::vector<int32_t> before, std::vector<int32_t> after, bool trims = false, bool prefix_space = false)
      : before_(std::move(before)), after_(std::move(after)), trims_(trims), prefix_space_(prefix_space) {}
  void apply(std::string_view text, std::vector<Encoded>& tokens, bool add_special_tokens) const override {
    if (trims_) trim(text, tokens, prefix_space_);
    if (!add_special_tokens) return;
    std::vector<Encoded> before;
    for (int32_t id : before_) before.push_back({{id, 0, 0}});
    tokens.insert(tokens.begin(), before.begin(), before.end());
    for (int32_t id : after_) tokens.push_back({{id, 0, 0}});
  }
  void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const override {
    before.insert(before.begin(), before_.begin(), before_.end());
    after.insert(after.end(), after_.begin(), after_.end());
  }
  bool trims() const override { return trims_; }

 private:
  std::vector<int32_t> before_, after_;
  bool trims_, prefix_space_;
};

class PostProcessorSequence final : public PostProcessor {
 public:
  explicit PostProcessorSequence(const JsonPlace& list) {
    for (const auto& item : list.items()) parts_.push_back(read_post_processor(item));
  }
  void apply(std::string_view text, std::vector<Encoded>& tokens, bool add_special_tokens) const override {
    for (const auto& part : parts_) part->apply(text, tokens, add_special_tokens);
  }
  void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const override {
    for (const auto& part : parts_) part->around(before, after);
  }
  bool trims() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->trims(); });
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
};

constexpr int64_t greatest_id = int64_t{1} << 28;

std::unique_ptr<PostProcessor> read_template(const JsonPlace& place) {
  std::vector<int32_t> before, after;
  bool text_seen = false;
  for (const auto& piece : place["single"].items()) {
    if (piece.has("Sequence")) {
      if (piece["Sequence"]["id"].choice({"A", "B"}) != 0)
        piece["Sequence"]["id"].refuse("the template of a single text can only have the text A");
      if (text_seen) piece.refuse("a template with the text twice is not supported");
      text_seen = true;
      continue;
    }
    if (!piece.has("SpecialToken")) piece.refuse("a piece must be {\"Sequence\": ...} or {\"SpecialToken\": ...}");
    const auto name = piece["SpecialToken"]["id"].string();
    for (const auto& id : place["special_tokens"][name]["ids"].items())
      (text_seen ? after : before).push_back(static_cast<int32_t>(id.integer(0, greatest_id)));
  }
  if (!text_seen) place["single"].refuse("a template without the text is not supported");
  return std::make_unique<Frame>(std::move(before), std::move(after));
}

std::vector<int32_t> pair_id(const JsonPlace& pair) {
  return {static_cast<int32_t>(pair.at(1).integer(0, greatest_id))};
}

}  // namespace

std::unique_ptr<PostProcessor> read_post_processor(const JsonPlace& place) {
  if (place.is_null()) return nullptr;
  switch (
      place["type"].choice({"Sequence", "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing"})) {
    case 0:
      return std::make_unique<PostProcessorSequence>(place["processors"]);
    case 1:
      return read_template(place);
    case 2:
      return std::make_unique<Frame>(std::vector<int32_t>{}, std::vector<int32_t>{},
                                     place.boolean_or("trim_offsets", true),
                                     place.boolean_or("add_prefix_space", true));
    case 3:
      return std::make_unique<Frame>(pair_id(place["cls"]), pair_id(place["sep"]));
    default:
      return std::make_unique<Frame>(pair_id(place["cls"]), pair_id(place["sep"]),
                                     place.boolean_or("trim_offsets", true),
                                     place.boolean_or("add_prefix_space", true));
  }
}

std::unique_ptr<PostProcessor> make_frame(std::vector<int32_t> before, std::vector<int32_t> after) {
  return std::make_unique<Frame>(std::move(before), std::move(after));
}

void count_space(std::string_view token, uint32_t& leading, uint32_t& trailing) {
  const auto is_space = [](char32_t c) {
    return c == 0x120 || unicode::is_space(c);
  };  // 0x120 stands for the byte of a space
  leading = trailing = 0;
  for (size_t i = 0; i < token.size() && is_space(unicode::next(token, i));) ++leading;
  for (size_t end = token.size(); end > 0; ++trailing) {
    const size_t begin = unicode::previous(token, end);
    size_t at = begin;
    if (!is_space(unicode::next(token, at))) break;
    end = begin;
  }
}

}  // namespace runner
