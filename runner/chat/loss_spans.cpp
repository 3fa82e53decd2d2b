#include "runner/chat/loss_spans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "runner/base/text.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::chat {
namespace {
/// In ascending order, without empty spans; neighbours are one.
std::vector<ByteSpan> merged(std::vector<ByteSpan> spans) {
  std::erase_if(spans, [](ByteSpan span) { return span.begin >= span.end; });
  std::sort(spans.begin(), spans.end(), [](ByteSpan a, ByteSpan b) { return a.begin < b.begin; });
  std::vector<ByteSpan> result;
  for (auto span : spans)
    if (!result.empty() && span.begin <= result.back().end)
      result.back().end = std::max(result.back().end, span.end);
    else
      result.push_back(span);
  return result;
}

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

/// The messages as they are; then with arguments of calls as the texts that the record gives; then with "" for the content null.
std::vector<Json> forms_of(const Conversation& conversation) {
  std::vector<Json> forms{conversation.messages};
  const auto also = [&](const auto& change) {
    for (size_t i = 0, count = forms.size(); i < count; ++i)
      if (auto form = forms[i]; change(form)) forms.push_back(std::move(form));
  };
  also([&](Json& messages) {
    for (auto& [place, text] : conversation.argument_texts) messages[place] = text;
    return !conversation.argument_texts.empty();
  });
  also([](Json& messages) {
    bool changed = false;
    for (auto& message : messages)
      if (message.contains("content") && message["content"].is_null()) message["content"] = "", changed = true;
    return changed;
  });
  return forms;
}

/// The first message with calls that the template does not write. Their names may be in the text for another reason, so they are
/// replaced by marks.
std::optional<size_t> message_without_calls(const ChatTemplate& chat_template, Json messages,
                                            const RenderRequest& request) {
  const auto mark = [](size_t k, size_t i) { return fmt::format("call-{}-{}-of-tool", k, i); };
  for (size_t k = 0; k < messages.size(); ++k)
    for (size_t i = 0; has_calls(messages[k]) && i < messages[k]["tool_calls"].size(); ++i)
      messages[k]["tool_calls"][i]["function"]["name"] = mark(k, i);
  std::string text;
  try {
    text = chat_template.render(messages, request).text;
  } catch (const jinja::TemplateError&) {
    return {};  // it knows the names
  }
  for (size_t k = 0; k < messages.size(); ++k)
    for (size_t i = 0; has_calls(messages[k]) && i < messages[k]["tool_calls"].size(); ++i)
      if (text.find(mark(k, i)) == std::string::npos) return k;
  return {};
}

/// Spans of one conversation.
class SpanFinder {
 public:
  SpanFinder(const ChatTemplate& chat_template, const Conversation& conversation, const TrainOn& train_on,
             RenderRequest request)
      : template_(chat_template), conversation_(conversation), train_on_(train_on), request_(std::move(request)) {
    if (!conversation.tools.is_null()) request_.tools = conversation.tools;
    if (!conversation.documents.is_null()) request_.documents = conversation.documents;
    for (auto& [name, value] : conversation.variables.items()) request_.variables[name] = value;
    request_.add_generation_prompt = false;
    messages_ = written_messages(template_, conversation_, request_);
    whole_ = template_.render(messages_, request_);
  }

  SupervisedText find() {
    if (conversation_.prompt_messages > 0)
      prompt_and_completion();
    else if (train_on_.what == TrainOn::What::all || train_on_.input)
      spans_.push_back({0, whole_.text.size()});
    else if (train_on_.what == TrainOn::What::roles && train_on_.roles != std::vector<std::string>{"assistant"})
      by_roles();
    else if (chosen().has_generation_blocks())
      by_blocks();
    else if (train_on_.what == TrainOn::What::last)
      last_message();
    else
      by_messages([](const std::string& role) { return role == "assistant"; });
    return {.text = std::move(whole_.text), .spans = merged(std::move(spans_))};
  }

 private:
  const Json& messages() const { return messages_; }
  const jinja::Template& chosen() const { return template_.chosen(!request_.tools.is_null()); }
  std::string role(size_t k) const { return messages()[k].value("role", ""); }

  /// The text of the first `count` messages.
  std::string text_of(size_t count, bool generation_prompt) const {
    auto first = Json::array();
    for (size_t i = 0; i < count; ++i) first.push_back(messages()[i]);
    auto request = request_;
    request.add_generation_prompt = generation_prompt;
    return template_.render(first, request).text;
  }

  [[noreturn]] void no_place(size_t k, std::string_view why) const {
    throw RecordError(
        fmt::format("/messages/{}", k),
        fmt::format(
            "the template {} {}, so it is unknown which part of the text is this message ({}). Use a template with "
            "{{% generation %}} blocks{}",
            chosen().name(), why, role(k), train_on_.what == TrainOn::What::last ? "" : ", or train_on = \"last\""));
  }

  /// Where message k begins in the whole text: behind the messages before it and, of an assistant, the generation prompt.
  size_t begin_of(size_t k) const {
    bool assistant = role(k) == "assistant";
    if (k == 0 && !assistant) return 0;
    auto before = text_of(k, assistant);
    if (!whole_.text.starts_with(before))
      no_place(k, assistant
                      ? "writes the messages before it, or the generation prompt, otherwise when this message follows"
                      : "writes the messages before it otherwise when this message follows");
    return before.size();
  }

  /// Where message k ends. Some templates write an end-of-text token behind the last message; it is not there if more follow.
  size_t end_of(size_t k) const {
    if (k + 1 == messages().size()) return whole_.text.size();
    auto until = text_of(k + 1, false);
    auto eos = template_.special_token("eos_token");
    std::string_view kept = until;
    if (!whole_.text.starts_with(kept)) kept = jinja::strip(kept, jinja::Side::right);
    if (!eos.empty() && !whole_.text.starts_with(kept) && kept.ends_with(eos)) kept.remove_suffix(eos.size());
    if (!whole_.text.starts_with(kept)) no_place(k, "writes this message otherwise when more follow");
    return kept.size();
  }

  void prompt_and_completion() {
    size_t begin =
        train_on_.input || train_on_.what == TrainOn::What::all ? 0 : begin_of(conversation_.prompt_messages);
    spans_.push_back({begin, whole_.text.size()});
  }

  template <typename Wanted>
  void by_messages(const Wanted& wanted) {
    for (size_t k = 0; k < messages().size(); ++k)
      if (wanted(role(k))) spans_.push_back({begin_of(k), end_of(k)});
  }

  void by_roles() {
    by_messages([&](const std::string& role) {
      return std::find(train_on_.roles.begin(), train_on_.roles.end(), role) != train_on_.roles.end();
    });
  }

  size_t last_assistant() const {
    size_t k = messages().size();
    while (k > 0 && role(k - 1) != "assistant") --k;
    return k;
  }

  void last_message() {
    if (size_t k = last_assistant(); k > 0) spans_.push_back({begin_of(k - 1), end_of(k - 1)});
  }

  void by_blocks() {
    if (whole_.lost_generation)
      throw RecordError(
          "", fmt::format(
                  "the template {} changes the text of a generation block before it writes it, so its place is unknown",
                  chosen().name()));
    spans_ = merged(whole_.generated);
    size_t k = last_assistant();
    if (train_on_.what != TrainOn::What::last || spans_.empty() || k == 0) return;
    auto before = text_of(k - 1, false);
    size_t begin = whole_.text.starts_with(before) ? before.size() : spans_.back().begin;
    std::erase_if(spans_, [&](ByteSpan span) { return span.begin < begin; });
  }

  const ChatTemplate& template_;
  const Conversation& conversation_;
  const TrainOn& train_on_;
  RenderRequest request_;
  Json messages_;  ///< in the form that the template writes
  Rendered whole_;
  std::vector<ByteSpan> spans_;
};
}  // namespace

Json written_messages(const ChatTemplate& chat_template, const Conversation& conversation,
                      const RenderRequest& request) {
  if (std::ranges::none_of(conversation.messages, has_calls)) return conversation.messages;
  std::exception_ptr first;
  for (auto& form : forms_of(conversation)) try {
      chat_template.render(form, request);
      const auto lost = message_without_calls(chat_template, form, request);
      if (!lost) return form;
      throw RecordError(fmt::format("/messages/{}/tool_calls", *lost),
                        fmt::format("the template {} does not write calls of tools, so this message would lose them. "
                                    "Set data.chat_template to a template that writes `tool_calls`",
                                    chat_template.chosen(!request.tools.is_null()).name()));
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  std::rethrow_exception(first);
}

TrainOn TrainOn::from_names(const std::vector<std::string>& names) {
  TrainOn result;
  if (names.size() == 1) {
    for (auto [name, what] : {std::pair("assistant", What::assistant), {"last", What::last}, {"all", What::all}})
      if (names[0] == name) return result.what = what, result;
  }
  auto allowed = runner::chat::roles();
  for (auto& name : names) {
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    auto words = allowed;
    if (names.size() == 1) words.insert(words.end(), {"last", "all"});
    auto near = nearest(name, words);
    throw usage_error("train_on cannot be {}{}; allowed: {}", name,
                      near ? fmt::format(" (did you mean {}?)", *near) : "", join(words, ", "));
  }
  if (names.empty())
    throw usage_error("train_on is empty; allowed: assistant, last, all, or roles of {}", join(allowed, ", "));
  result.what = What::roles;
  result.roles = names;
  return result;
}

SupervisedText supervised_text(const ChatTemplate& chat_template, const Conversation& conversation,
                               const TrainOn& train_on, const RenderRequest& request, std::string_view end) {
  auto with_end = [&](std::string text) { return text.ends_with(end) ? text : text.append(end); };
  switch (conversation.form) {
    case Conversation::Form::text: {
      auto text = with_end(conversation.text);
      size_t size = text.size();
      return {.text = std::move(text), .spans = merged({{0, size}})};
    }
    case Conversation::Form::pair: {
      auto text = conversation.prompt + with_end(conversation.completion);
      size_t size = text.size(),
             begin = train_on.input || train_on.what == TrainOn::What::all ? 0 : conversation.prompt.size();
      return {.text = std::move(text), .spans = merged({{begin, size}})};
    }
    case Conversation::Form::messages:
      break;
  }
  return SpanFinder(chat_template, conversation, train_on, request).find();
}

}  // namespace runner::chat
