// The post-processors of tokenizer.json.
#include <optional>

#include "runner/base/error.hpp"
#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

namespace {

FramePart token_part(int32_t id, int32_t type) { return {.kind = FramePart::Kind::token, .id = id, .type = type}; }

/// Ids before and after the text.
class Frame final : public PostProcessor {
 public:
  /// `pair`: the frame of two texts; unset: none. An empty one adds no token.
  Frame(std::vector<int32_t> before, std::vector<int32_t> after, std::optional<TokenFrame> pair)
      : before_(std::move(before)), after_(std::move(after)), pair_(std::move(pair)) {}
  void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const override {
    before.insert(before.begin(), before_.begin(), before_.end());
    after.insert(after.end(), after_.begin(), after_.end());
  }
  void frame(bool pair, TokenFrame& parts) const override {
    if (!pair) {
      const TokenFrame inside = std::move(parts);
      parts.clear();
      for (const auto id : before_) parts.push_back(token_part(id, 0));
      parts.insert(parts.end(), inside.begin(), inside.end());
      for (const auto id : after_) parts.push_back(token_part(id, 0));
      return;
    }
    if (!pair_) throw usage_error("the tokenizer has no template for two texts");
    if (!pair_->empty()) parts = *pair_;
  }

 private:
  std::vector<int32_t> before_, after_;
  std::optional<TokenFrame> pair_;
};

class PostProcessorSequence final : public PostProcessor {
 public:
  explicit PostProcessorSequence(const JsonPlace& place) {
    for (const auto& item : place["processors"].items()) parts_.push_back(read_post_processor(item));
  }
  void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const override {
    for (const auto& part : parts_) part->around(before, after);
  }
  void frame(bool pair, TokenFrame& parts) const override {
    for (const auto& part : parts_) part->frame(pair, parts);
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
};

constexpr int64_t greatest_id = int64_t{1} << 28;

std::vector<int32_t> ids_of(const JsonPlace& place, const std::string& name) {
  std::vector<int32_t> ids;
  for (const auto& id : place["special_tokens"][name]["ids"].items())
    ids.push_back(static_cast<int32_t>(id.integer(0, greatest_id)));
  return ids;
}

/// The template of two texts; unset if it does not contain each of them once.
std::optional<TokenFrame> read_pair_template(const JsonPlace& place) {
  if (!place.has("pair")) return std::nullopt;
  TokenFrame parts;
  int firsts = 0, seconds = 0;
  for (const auto& piece : place["pair"].items()) {
    const bool text = piece.has("Sequence");
    const auto& content = piece[text ? "Sequence" : "SpecialToken"];
    const auto type = static_cast<int32_t>(content.has("type_id") ? content["type_id"].integer(0, greatest_id) : 0);
    if (!text) {
      for (const auto id : ids_of(place, content["id"].string())) parts.push_back(token_part(id, type));
      continue;
    }
    const bool first = content["id"].choice({"A", "B"}) == 0;
    ++(first ? firsts : seconds);
    parts.push_back({.kind = first ? FramePart::Kind::first_text : FramePart::Kind::second_text, .type = type});
  }
  return firsts == 1 && seconds == 1 ? std::optional(parts) : std::nullopt;
}

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
    for (const auto id : ids_of(place, name)) (text_seen ? after : before).push_back(id);
  }
  if (!text_seen) place["single"].refuse("a template without the text is not supported");
  return std::make_unique<Frame>(std::move(before), std::move(after), read_pair_template(place));
}

/// Two texts: `before`, the first text, `between`, the second text, `after`.
TokenFrame pair_frame(const std::vector<int32_t>& before, const std::vector<int32_t>& between,
                      const std::vector<int32_t>& after, int32_t second_type) {
  TokenFrame parts;
  for (const auto id : before) parts.push_back(token_part(id, 0));
  parts.push_back({.kind = FramePart::Kind::first_text});
  for (const auto id : between) parts.push_back(token_part(id, 0));
  parts.push_back({.kind = FramePart::Kind::second_text, .type = second_type});
  for (const auto id : after) parts.push_back(token_part(id, second_type));
  return parts;
}

std::vector<int32_t> pair_id(const JsonPlace& pair) {
  return {static_cast<int32_t>(pair.at(1).integer(0, greatest_id))};
}

/// BERT's second text has another type; RoBERTa's is behind two separators.
template <bool roberta>
std::unique_ptr<PostProcessor> read_bert_frame(const JsonPlace& place) {
  const auto cls = pair_id(place["cls"]), sep = pair_id(place["sep"]);
  const auto between = roberta ? std::vector{sep[0], sep[0]} : sep;
  return std::make_unique<Frame>(cls, sep, pair_frame(cls, between, sep, /*second_type=*/roberta ? 0 : 1));
}

}  // namespace

std::unique_ptr<PostProcessor> read_post_processor(const JsonPlace& place) {
  using Kind = ComponentKind<PostProcessor>;
  const auto add_nothing = [](const JsonPlace&) -> std::unique_ptr<PostProcessor> {
    return std::make_unique<Frame>(std::vector<int32_t>{}, std::vector<int32_t>{}, TokenFrame());
  };
  return read_component<PostProcessor>(
      place, {Kind::of<PostProcessorSequence>("Sequence"), Kind{"TemplateProcessing", read_template},
              Kind{"ByteLevel", add_nothing}, Kind{"BertProcessing", read_bert_frame<false>},
              Kind{"RobertaProcessing", read_bert_frame<true>}});
}

std::unique_ptr<PostProcessor> make_frame(std::vector<int32_t> before, std::vector<int32_t> after) {
  TokenFrame pair = pair_frame(before, after, {}, /*second_type=*/1);
  std::vector<FramePart> of_second;
  for (const auto id : before) of_second.push_back(token_part(id, 1));
  pair.insert(pair.end() - 1, of_second.begin(), of_second.end());
  for (const auto id : after) pair.push_back(token_part(id, 1));
  return std::make_unique<Frame>(std::move(before), std::move(after), std::move(pair));
}

TokenFrame text_frame(bool pair) {
  TokenFrame parts = {{.kind = FramePart::Kind::first_text}};
  if (pair) parts.push_back({.kind = FramePart::Kind::second_text, .type = 1});
  return parts;
}

TokenFrame Tokenizer::frame(bool pair) const {
  TokenFrame parts;
  for (const auto id : encode("", /*add_special_tokens=*/true)) parts.push_back(token_part(id, 0));
  for (const auto& text : text_frame(pair)) parts.push_back(text);
  return parts;
}

}  // namespace runner
