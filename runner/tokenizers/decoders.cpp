// The decoders of tokenizer.json.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/tokenizers/byte_characters.hpp"
#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

namespace {

void replace_all(std::string& text, std::string_view old, std::string_view content) {
  if (old.empty()) return;
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + content.size()))
    text.replace(at, old.size(), content);
}

void join_tokens(std::vector<std::string>& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  tokens.assign(1, std::move(text));
}

class ByteLevelDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const auto& token : tokens) {
      auto own = bytes_of(token);
      bytes += own ? *own : token;
    }
    tokens.assign(1, unicode::with_replacements(bytes));
  }
};

/// Removes the artefacts of BERT's tokenisation of English.
void clean_up(std::string& text) {
  static constexpr std::pair<const char*, const char*> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [old, content] : rules) replace_all(text, old, content);
}

class WordPieceDecoder final : public TokenDecoder {
 public:
  explicit WordPieceDecoder(const JsonPlace& place)
      : prefix_(place.string_or("prefix", "##")), clean_(place.boolean_or("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_))
          tokens[i].erase(0, prefix_.size());
        else
          tokens[i].insert(tokens[i].begin(), ' ');
      }
      if (clean_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool clean_;
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(const JsonPlace& place)
      : prepended_(place.string_or("prepend_scheme", "always") != "never" &&
                   place.boolean_or("add_prefix_space", true)) {
    unicode::append(character_, place.has("replacement") ? place["replacement"].character() : U'\u2581');
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], character_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string character_;
  bool prepended_;
};

class BpeDecoder final : public TokenDecoder {
 public:
  explicit BpeDecoder(const JsonPlace& place) : suffix_(place.string_or("suffix", "</w>")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

/// Runs of tokens <0xHH> become the text of these bytes, or one U+FFFD for each byte.
class ByteFallbackDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto end_run = [&] {
      if (bytes.empty()) return;
      if (!first_invalid_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xef\xbf\xbd");
      bytes.clear();
    };
    for (auto& token : tokens) {
      if (const int byte = byte_in(token); byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        end_run();
        out.push_back(std::move(token));
      }
    }
    end_run();
    tokens = std::move(out);
  }

 private:
  static int byte_in(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
    const auto byte = from_hex(lower(token.substr(3, 2)));
    return byte ? static_cast<unsigned char>(byte->front()) : -1;
  }
};

class FuseDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override { join_tokens(tokens); }
};

class StripDecoder final : public TokenDecoder {
 public:
  explicit StripDecoder(const JsonPlace& place)
      : start_(static_cast<size_t>(place["start"].integer(0, 1 << 30))),
        stop_(static_cast<size_t>(place["stop"].integer(0, 1 << 30))) {
    unicode::append(content_, place["content"].character());
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) {
      size_t begin = 0, end = token.size();
      for (size_t i = 0; i < start_ && token.compare(begin, content_.size(), content_) == 0; ++i)
        begin += content_.size();
      for (size_t i = 0; i < stop_ && end >= begin + content_.size() &&
                         token.compare(end - content_.size(), content_.size(), content_) == 0;
           ++i)
        end -= content_.size();
      token = token.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class ReplaceDecoder final : public TokenDecoder {
 public:
  explicit ReplaceDecoder(const JsonPlace& place) : pattern_(place["pattern"]), content_(place["content"].string()) {}
  void apply(std::vector<std::string>& tokens) const override {
    size_t bytes = 0;
    for (const auto& token : tokens) bytes += token.size();
    PatternTime time(bytes);
    for (auto& token : tokens) {
      std::string text;
      pattern_.split(token, time, [&](size_t begin, size_t end, bool is_match) {
        text += is_match ? std::string_view(content_) : std::string_view(token).substr(begin, end - begin);
      });
      token = std::move(text);
    }
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

/// Connectionist temporal classification: repeated tokens count once.
class CtcDecoder final : public TokenDecoder {
 public:
  explicit CtcDecoder(const JsonPlace& place)
      : pad_(place.string_or("pad_token", "<pad>")),
        delimiter_(place.string_or("word_delimiter_token", "|")),
        clean_(place.boolean_or("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (auto& token : tokens) {
      replace_all(token, pad_, "");
      if (!clean_) continue;
      clean_up(token);
      replace_all(token, delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool clean_;
};

class DecoderSequence final : public TokenDecoder {
 public:
  explicit DecoderSequence(const JsonPlace& place) {
    for (const auto& item : place["decoders"].items()) parts_.push_back(read_decoder(item));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

}  // namespace

std::unique_ptr<TokenDecoder> read_decoder(const JsonPlace& place) {
  using Kind = ComponentKind<TokenDecoder>;
  return read_component<TokenDecoder>(
      place,
      {Kind::of<DecoderSequence>("Sequence"), Kind::of<ByteLevelDecoder>("ByteLevel"),
       Kind::of<WordPieceDecoder>("WordPiece"), Kind::of<MetaspaceDecoder>("Metaspace"),
       Kind::of<BpeDecoder>("BPEDecoder"), Kind::of<ByteFallbackDecoder>("ByteFallback"), Kind::of<FuseDecoder>("Fuse"),
       Kind::of<StripDecoder>("Strip"), Kind::of<ReplaceDecoder>("Replace"), Kind::of<CtcDecoder>("CTC")});
}

}  // namespace runner
