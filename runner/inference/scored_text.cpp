#include "runner/inference/scored_text.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/records.hpp"
#include "runner/inference/generation_settings.hpp"
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

using Json = nlohmann::ordered_json;

const Json* first_of(const Json& record, const std::vector<std::string>& keys) {
  for (const auto& key : keys)
    if (const auto found = record.find(key); found != record.end()) return &*found;
  return nullptr;
}

/// Throws Error(usage) with the keys if the record has none of them.
const Json& needed(const Json& record, const std::vector<std::string>& keys, const std::string& place) {
  if (const Json* found = first_of(record, keys)) return *found;
  std::vector<std::string> names;
  for (const auto& [name, value] : record.items()) names.push_back(name);
  throw usage_error("{}: there is no `{}`; the record has {}", place, join(keys, "` or `"), join(names, ", "));
}

std::vector<std::string> texts_of(const Json& choices, const std::string& place) {
  const Json* list = &choices;
  if (choices.is_object() && choices.contains("text")) list = &choices["text"];
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!list->is_array() || list->size() < 2 || !std::all_of(list->begin(), list->end(), is_text))
    throw usage_error("{}: `choices` must be a list of at least two texts", place);
  return list->get<std::vector<std::string>>();
}

/// The labels that the choices of a record have of their own; empty: none.
std::vector<std::string> own_labels(const Json& choices) {
  const auto found = choices.is_object() ? choices.find("label") : choices.end();
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (found == choices.end() || !found->is_array() || !std::all_of(found->begin(), found->end(), is_text)) return {};
  return found->get<std::vector<std::string>>();
}

int64_t label_of(const Json& label, const std::vector<std::string>& choices, const std::vector<std::string>& labels,
                 const std::string& place) {
  int64_t index = -1;
  if (label.is_number_integer()) index = label.get<int64_t>();
  if (label.is_string()) {
    const auto text = label.get<std::string>();
    const auto labelled = std::ranges::find(labels, text), named = std::ranges::find(choices, text);
    if (labelled != labels.end())
      index = labelled - labels.begin();
    else if (named != choices.end())
      index = named - choices.begin();
    else if (!labels.empty())
      index = -1;
    else if (text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z')
      index = text[0] - 'A';
    else if (!text.empty() && text.size() < 4 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
      index = std::stoll(text);
  }
  if (index < 0 || index >= std::ssize(choices))
    throw usage_error("{}: `label` is {}: must be the index of one of {} choices (from 0), {}, or the text of a choice",
                      place, label.dump(), choices.size(),
                      labels.empty() ? "a letter (A is the first)" : "one of their labels: " + join(labels, ", "));
  return index;
}

int64_t greatest(const std::vector<double>& scores) { return std::ranges::max_element(scores) - scores.begin(); }

}  // namespace

int32_t first_token(const Tokenizer& tokenizer, const fs::path& folder) {
  const auto roles = tokenizer.special_tokens();
  if (const auto role = roles.bos ? roles.bos : roles.eos) return *role;
  const int64_t first = configured_bos(folder).value_or(0);
  if (first >= tokenizer.vocab_size())
    throw usage_error("{}: bos_token_id = {} is not one of the tokenizer's {} tokens",
                      (folder / "config.json").string(), first, tokenizer.vocab_size());
  return static_cast<int32_t>(first);
}

ScoredTokens encode_pair(const Tokenizer& tokenizer, std::string context, std::string continuation,
                         const fs::path& folder) {
  size_t end = context.size();
  while (end > 0 && white_space(std::string_view(context).substr(end - 1)) == 1) --end;
  continuation = context.substr(end) + continuation;
  context.resize(end);
  ScoredTokens pair;
  if (context.empty()) {
    pair.continuation = tokenizer.encode(continuation);
    const int32_t first = first_token(tokenizer, folder);
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

ChoiceRecord choice_record(const std::string& line, const std::string& place, int64_t number) {
  const auto json = json_of_line(line, place);
  if (!json.is_object()) throw usage_error("{}: is not a JSON object", place);
  Recipe::Data data;
  data.format = "jsonl";
  ChoiceRecord record{.id = record_id(data, json, static_cast<size_t>(number))};
  const auto& context = needed(json, {"context", "question", "query", "ctx"}, place);
  if (!context.is_string()) throw usage_error("{}: the context must be a text", place);
  record.context = context.get<std::string>();
  const auto& choices = needed(json, {"choices", "endings"}, place);
  record.choices = texts_of(choices, place);
  record.label = label_of(needed(json, {"label", "answer", "gold", "answerKey"}, place), record.choices,
                          own_labels(choices), place);
  return record;
}

ChoicePrediction predict_choice(const ChoiceRecord& record, const std::vector<double>& log_probabilities,
                                const std::vector<int64_t>& token_counts) {
  const auto by = [&](const std::function<int64_t(size_t)>& length) {
    std::vector<double> scores;
    for (size_t i = 0; i < log_probabilities.size(); ++i)
      scores.push_back(log_probabilities[i] / static_cast<double>(std::max<int64_t>(1, length(i))));
    return greatest(scores);
  };
  return {.sum = greatest(log_probabilities),
          .characters = by([&](size_t i) { return static_cast<int64_t>(unicode::count(record.choices[i])); }),
          .bytes = by([&](size_t i) { return std::ssize(record.choices[i]); }),
          .tokens = by([&](size_t i) { return token_counts[i]; })};
}

Share share_of(int64_t hits, int64_t count) {
  const auto n = static_cast<double>(count), mean = static_cast<double>(hits) / n;
  Share share{.mean = mean};
  if (count > 1) share.standard_error = std::sqrt(mean * (1 - mean) / (n - 1));
  return share;
}

}  // namespace runner
