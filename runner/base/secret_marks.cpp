#include "runner/base/secret_marks.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>

#include "runner/base/secret_names.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr std::string_view ends_of_words = " \t\r\n\"'`<>,;&|(){}[]";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'; }

class MarkFinder {
 public:
  explicit MarkFinder(std::string_view text) : text_(text), lower_(lower(text)) {}

  std::vector<SecretMark> all() {
    schemes();
    users();
    tokens();
    for (size_t i = 0; i < text_.size(); ++i)
      if (text_[i] == '=' || text_[i] == ':') assignment(i);
    std::vector<SecretMark> marks;
    for (const auto& [begin, size] : found_)
      if (marks.empty() || marks.back().begin + marks.back().size <= begin) marks.push_back({begin, size});
    std::ranges::reverse(marks);
    return marks;
  }

 private:
  size_t after_spaces(size_t at) const { return std::min(text_.find_first_not_of(" \t", at), text_.size()); }

  /// Words of programs and the schemes of Authorization, which are no secrets.
  static bool is_keyword(std::string_view word) {
    constexpr std::array<std::string_view, 9> words = {"true",  "false",  "null",   "none", "nil",
                                                       "basic", "bearer", "digest", "token"};
    return std::ranges::find(words, lower(word)) != words.end();
  }

  /// A value from `begin` on: what is between quotes, or a word.
  void value(size_t begin) {
    if (begin >= text_.size()) return;
    const char quote = text_[begin];
    const bool quoted = quote == '"' || quote == '\'';
    if (quoted) ++begin;
    const size_t end =
        std::min(text_.size(), quoted ? text_.find(quote, begin) : text_.find_first_of(ends_of_words, begin));
    const auto found = text_.substr(begin, end - begin);
    if (!found.empty() && found[0] != '$' && found[0] != '*' && found[0] != '=' && !is_keyword(found))
      found_.emplace(begin, found.size());
  }

  /// Whether a short word or one of letters only begins here, as in "the bearer of news".
  bool prose(size_t begin) const {
    constexpr size_t shortest = 6;
    const auto word = text_.substr(begin, text_.find_first_of(ends_of_words, begin) - begin);
    return word.size() < shortest || std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c) != 0; });
  }

  /// "Bearer V" anywhere; Basic, Digest, Token and others only after "Authorization:".
  void schemes() {
    constexpr std::string_view bearer = "bearer ", authorization = "authorization";
    for (size_t at = lower_.find(bearer); at != std::string::npos; at = lower_.find(bearer, at + 1))
      if ((at == 0 || !is_name(text_[at - 1])) && !prose(after_spaces(at + bearer.size())))
        value(after_spaces(at + bearer.size()));
    for (size_t at = lower_.find(authorization); at != std::string::npos; at = lower_.find(authorization, at + 1)) {
      size_t next = after_spaces(at + authorization.size());
      if (next >= text_.size() || (text_[next] != ':' && text_[next] != '=')) continue;
      next = after_spaces(next + 1);
      for (const std::string_view scheme : {"basic ", "digest ", "token ", "bearer "})
        if (std::string_view(lower_).substr(next).starts_with(scheme)) next = after_spaces(next + scheme.size());
      value(next);
    }
  }

  /// -u USER:V and --user USER:V, as curl has them. Two numbers are ids of a user and a group.
  void users() {
    for (const std::string_view option : {"-u ", "--user ", "--user="})
      for (size_t at = text_.find(option); at != std::string_view::npos; at = text_.find(option, at + 1)) {
        if (at > 0 && text_[at - 1] != ' ') continue;
        const size_t begin = after_spaces(at + option.size());
        const auto word = text_.substr(begin, text_.find_first_of(" \t\r\n", begin) - begin);
        const size_t colon = word.find(':');
        if (colon != std::string_view::npos && word[0] != '$' &&
            word.find_first_not_of("0123456789:") != std::string_view::npos)
          value(begin + colon + 1);
      }
  }

  /// Words with the beginning, the signs and the length of a token.
  void tokens() {
    struct Form {
      std::string_view begin, signs;  ///< of the rest; "": letters and digits
      size_t shortest;                ///< of the rest
    };
    static constexpr Form forms[] = {
        {"eyJ", "-_.", 20}, {"ghp_", "", 36},     {"gho_", "", 36},   {"ghu_", "", 36},         {"ghs_", "", 36},
        {"ghr_", "", 36},   {"hf_", "", 30},      {"sk-", "-_", 20},  {"github_pat_", "_", 22}, {"AKIA", "", 16},
        {"ASIA", "", 16},   {"glpat-", "-_", 20}, {"xoxb-", "-", 20}, {"xoxp-", "-", 20},       {"xoxa-", "-", 20},
        {"xoxs-", "-", 20}, {"xoxr-", "-", 20}};
    for (const auto& form : forms)
      for (size_t at = text_.find(form.begin); at != std::string_view::npos; at = text_.find(form.begin, at + 1)) {
        if (at > 0 && (is_name(text_[at - 1]) || text_[at - 1] == '/')) continue;
        size_t end = at + form.begin.size();
        bool digit = false;
        while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) ||
                                      form.signs.find(text_[end]) != std::string_view::npos))
          digit = std::isdigit(static_cast<unsigned char>(text_[end++])) || digit;
        if (digit && end - at - form.begin.size() >= form.shortest) found_.emplace(at, end - at);
      }
  }

  /// NAME=V and NAME = "V"; X-NAME: V and "NAME": "V". Other colons are prose.
  void assignment(size_t sign) {
    size_t end = sign;
    while (end > 0 && text_[end - 1] == ' ') --end;
    const bool quoted_name = end > 0 && (text_[end - 1] == '"' || text_[end - 1] == '\'');
    if (quoted_name) --end;
    size_t begin = end;
    while (begin > 0 && is_name(text_[begin - 1])) --begin;
    const auto name = text_.substr(begin, end - begin);
    if (!is_secret_name(name.substr(name.rfind('.') + 1))) return;
    const size_t next = after_spaces(sign + 1);
    const bool spaced = next > sign + 1 || end + (quoted_name ? 1 : 0) < sign;
    const bool quoted = next < text_.size() && (text_[next] == '"' || text_[next] == '\'');
    const bool header = name.find('-') != std::string_view::npos;
    if (text_[sign] == '=' ? !spaced || quoted : quoted_name ? quoted : header) value(next);
  }

  std::string_view text_;
  std::string lower_;
  std::map<size_t, size_t> found_;  ///< begin -> size
};

}  // namespace

std::vector<SecretMark> secret_marks(std::string_view text) { return MarkFinder(text).all(); }

}  // namespace runner
