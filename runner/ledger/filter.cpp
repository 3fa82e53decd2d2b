#include "runner/ledger/filter.hpp"

#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"

namespace runner {

namespace {

using Relation = RunTerm::Relation;

/// The message, the line of the text that contains the place, and carets under it.
std::string with_carets(const std::string& text, FilterPlace place, const std::string& message) {
  const size_t offset = std::min(place.offset, text.size());
  const size_t begin = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;  // npos + 1 is 0
  std::string line = text.substr(begin, text.find('\n', offset) - begin);
  std::ranges::replace_if(
      line, [](char c) { return c == '\t' || c == '\r'; }, ' ');
  const std::string indent(unicode::count(std::string_view(line).substr(0, offset - begin)), ' ');
  const std::string_view marked = std::string_view(line).substr(std::min(offset - begin, line.size()), place.length);
  return fmt::format("{}\n  {}\n  {}{}", message, line, indent,
                     std::string(std::max<size_t>(1, unicode::count(marked)), '^'));
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const auto near = nearest(lower(word), known);
  return near ? fmt::format("; did you mean \"{}\"?", *near) : "";
}

/// The functions of a metric in an operand, in the order of RunOperand::Of after `name`.
const std::vector<std::string> metric_functions = {"last", "best", "min", "max"};

/// Reads a filter from left to right.
class FilterParser {
 public:
  explicit FilterParser(const std::string& text) : text_(text) {}

  RunFilter filter() {
    result_.text = text_;
    for (skip_spaces(); !at_end(); skip_spaces()) term();
    return std::move(result_);
  }

  std::vector<RunOperand> columns() {
    std::vector<RunOperand> list;
    do {
      skip_spaces();
      list.push_back(operand());
      skip_spaces();
    } while (take(","));
    if (!at_end()) fail({at_, text_.size() - at_}, "columns are separated by commas");
    return list;
  }

 private:
  [[noreturn]] void fail(FilterPlace place, const std::string& message) const {
    throw FilterError(text_, place, message);
  }
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  void skip_spaces() {
    while (!at_end() && is_space(peek())) ++at_;
  }
  bool take(std::string_view word) {
    if (!std::string_view(text_).substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string slice(size_t begin) const { return text_.substr(begin, at_ - begin); }

  /// A quoted text, or everything before one of the characters `ends` or a space.
  std::string text_before(std::string_view ends, FilterPlace& place) {
    const size_t begin = at_;
    if (const char quote = peek(); quote == '"' || quote == '\'') {
      const auto end = text_.find(quote, at_ + 1);
      if (end == std::string::npos) fail({begin, text_.size() - begin}, fmt::format("there is no closing {}", quote));
      at_ = end + 1;
      place = {begin, at_ - begin};
      return text_.substr(begin + 1, end - begin - 1);
    }
    while (!at_end() && !is_space(peek()) && ends.find(peek()) == std::string_view::npos) ++at_;
    place = {begin, at_ - begin};
    return slice(begin);
  }

  /// The name in best(NAME); the parenthesis before it is read already.
  RunOperand function_of(const std::string& function, FilterPlace start) {
    const auto known = std::ranges::find(metric_functions, function);
    if (known == metric_functions.end())
      fail(start, fmt::format("there is no function `{}`: it is {}{}", function, join_or(metric_functions),
                              did_you_mean(function, metric_functions)));
    skip_spaces();
    FilterPlace name_place;
    const auto of = static_cast<RunOperand::Of>(1 + (known - metric_functions.begin()));
    RunOperand operand{.of = of, .name = text_before(")", name_place), .place = start};
    skip_spaces();
    if (!take(")")) fail({start.offset, at_ - start.offset}, fmt::format("`{}(` has no closing parenthesis", function));
    operand.place.length = at_ - start.offset;
    if (operand.name.empty())
      fail(operand.place, fmt::format("`{}` needs the name of a metric: {}(val_loss)", function, function));
    return operand;
  }

  RunOperand operand() {
    FilterPlace place;
    const std::string name = text_before(",:=<>!()", place);
    if (name.empty()) fail({at_, 1}, "here must be the name of a field, a recipe key or a metric");
    if (take("(")) return function_of(name, place);
    return {.of = RunOperand::Of::name, .name = name, .place = place};
  }

  std::optional<Relation> relation() {
    const size_t before = at_;
    skip_spaces();
    if (take(">=")) return Relation::at_least;
    if (take("<=")) return Relation::at_most;
    if (take("!=")) return Relation::unequal;
    if (take("==") || take("=")) return Relation::one_of;
    if (take(">")) return Relation::greater;
    if (take("<")) return Relation::less;
    if (take(":")) return Relation::one_of;
    at_ = before;
    return std::nullopt;
  }

  void values(RunTerm& term) {
    skip_spaces();
    do {
      FilterPlace place;
      term.values.push_back(text_before(",", place));
      term.places.push_back(place);
      if (place.length == 0)
        fail({term.operand.place.offset, at_ - term.operand.place.offset},
             fmt::format("`{}` has no value", term.operand.text()));
    } while (take(","));
  }

  void term() {
    const size_t begin = at_;
    bool negated = false;
    while (peek() == '-' || peek() == '!') {
      negated = !negated;
      ++at_;
    }
    skip_spaces();
    if (at_end() || peek() == '(' || peek() == ')')
      fail({begin, std::max<size_t>(1, at_ - begin)},
           at_end() ? "a term must follow here" : "terms cannot be grouped by parentheses");
    if (peek() == '"' || peek() == '\'') return search(negated);
    const size_t name_begin = at_;
    RunTerm term{.operand = operand(), .negated = negated};
    const auto found = relation();
    if (!found) {
      if (term.operand.of != RunOperand::Of::name)
        fail(term.operand.place, fmt::format("compare `{0}` with a number, as in {0}<2", term.operand.text()));
      at_ = name_begin;
      return word(negated);
    }
    term.relation = *found;
    if (term.operand.of == RunOperand::Of::name) {
      const std::string& name = term.operand.name;
      if (name == "sort" || name == "order") return sort(negated, begin);
      if (name == "limit" || name == "newest") return limit(term);
      if (name == "since" || name == "before") {
        term.relation = name == "since" ? Relation::at_least : Relation::less;
        term.operand.name = "started";
      }
    }
    values(term);
    check(term);
    result_.terms.push_back(std::move(term));
  }

  /// `and`, `not`, or a word to search for.
  void word(bool negated) {
    const size_t begin = at_;
    FilterPlace place;
    const std::string word = lower(text_before("", place));
    if (word == "and") return;
    if (word == "or")
      fail(place, "terms cannot be joined by \"or\"; several values of one field can: status:failed,lost");
    if (word == "not") {
      skip_spaces();
      const size_t terms = result_.terms.size();
      if (at_end()) fail(place, "a term must follow here");
      term();
      if (result_.terms.size() == terms) fail(place, "\"not\" must be followed by a condition");
      result_.terms.back().negated = !result_.terms.back().negated;
      return;
    }
    if (std::ranges::find(run_statuses(), word) != run_statuses().end())
      fail(place, fmt::format("did you mean status:{0}? name:{0} finds the name", word));
    at_ = begin;
    search(negated);
  }

  void search(bool negated) {
    RunTerm term{.negated = negated};
    FilterPlace place;
    term.values.push_back(text_before("", place));
    term.places.push_back(place);
    term.operand.place = place;
    result_.terms.push_back(std::move(term));
  }

  void sort(bool negated, size_t begin) {
    if (negated) fail({begin, at_ - begin}, "descending order is written sort:-NAME");
    do {
      skip_spaces();
      RunOrder order;
      order.descending = take("-");
      if (at_end()) fail({begin, at_ - begin}, "`sort` has no value");
      order.operand = operand();
      result_.order.push_back(std::move(order));
    } while (take(","));
  }

  void limit(RunTerm& term) {
    const auto number = [&]() -> std::optional<size_t> {
      FilterPlace place;
      skip_spaces();
      const std::string text = text_before("", place);
      const auto value = parse_number<double>(text);
      if (!value || *value < 1 || *value > 1e15 || *value != static_cast<double>(static_cast<size_t>(*value)) ||
          term.relation != Relation::one_of || term.negated)
        fail({term.operand.place.offset, at_ - term.operand.place.offset},
             fmt::format("`{0}` is followed by a number of runs, as in {0}:20", term.operand.name));
      return static_cast<size_t>(*value);
    }();
    (term.operand.name == "limit" ? result_.limit : result_.newest) = number;
  }

  /// Checks values whose type the field alone determines.
  void check(RunTerm& term) {
    const bool compares = term.relation != Relation::one_of && term.relation != Relation::unequal;
    const auto* field = term.operand.of == RunOperand::Of::name ? find_run_field(term.operand.name) : nullptr;
    if (compares && term.values.size() > 1) fail(term.places[1], "a comparison has one value");
    for (size_t i = 0; i < term.values.size(); ++i) check_value(term, field, term.values[i], term.places[i], compares);
  }

  void check_value(const RunTerm& term, const RunField* field, std::string& value, FilterPlace place, bool compares) {
    using Kind = FieldKind;
    const Kind kind = field ? field->kind : compares ? Kind::number : Kind::text;
    const bool metric = term.operand.of != RunOperand::Of::name;
    const bool is_text = !metric && kind != Kind::number && kind != Kind::duration && kind != Kind::time;
    if (compares && is_text)
      fail(term.operand.place, fmt::format("`{0}` is not a number; write {0}:{1}", term.operand.text(), value));
    if (field && kind == Kind::status) {
      value = lower(value);
      if (std::ranges::find(run_statuses(), value) == run_statuses().end() &&
          value.find_first_of("*?[") == std::string::npos)
        fail(place, fmt::format("there is no status \"{}\"{}; it is one of {}", value,
                                did_you_mean(value, run_statuses()), join_or(run_statuses())));
    }
    if (field && kind == Kind::flag) {
      static const std::vector<std::string> words = {"yes", "no", "any"};
      value = value == "true" || value == "1" ? "yes" : value == "false" || value == "0" ? "no" : lower(value);
      if (std::ranges::find(words, value) == words.end())
        fail(place, fmt::format("`{}` is yes, no or any, not \"{}\"", field->name, value));
    }
    if (field && kind == Kind::time && !filter_time(value, wall_seconds()))
      fail(place,
           fmt::format("\"{}\" is no time: write a duration before now (7d, 12h, 30m), a date (2026-11-20), a date "
                       "with a time (2026-11-20T18:00), today or yesterday",
                       value));
    const bool is_duration = field && kind == Kind::duration;
    if (is_duration && !parse_number<double>(value) && !parse_duration(value))
      fail(place, fmt::format("\"{}\" is no duration: write 90s, 30m, 1h30m or 2d", value));
    if ((metric || kind == Kind::number) && !parse_number<double>(value))
      fail(place, fmt::format("`{}` is compared with a number, and \"{}\" is none", term.operand.text(), value));
  }

  const std::string& text_;
  size_t at_ = 0;
  RunFilter result_;
};

}  // namespace

FilterError::FilterError(const std::string& text, FilterPlace place, const std::string& message)
    : Error(ExitCode::usage, with_carets(text, place, message)), message_(message), place_(place) {}

std::string RunOperand::text() const {
  return of == Of::name ? name : metric_functions.at(static_cast<size_t>(of) - 1) + "(" + name + ")";
}

RunFilter parse_filter(const std::string& text) { return FilterParser(text).filter(); }

RunColumns parse_columns(const std::string& text) { return {.text = text, .list = FilterParser(text).columns()}; }

}  // namespace runner
