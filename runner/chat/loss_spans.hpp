// The text of a sample, and the bytes of it that the loss is computed on.
#pragma once
#include <string>
#include <vector>

#include "runner/chat/chat_template.hpp"
#include "runner/chat/layouts.hpp"

namespace runner::chat {

/// The supervised parts of a sample.
struct TrainOn {
  enum class What { assistant, last, all, roles };
  What what = What::assistant;
  std::vector<std::string> roles = {};  ///< of What::roles
  bool input = false;                   ///< prompts are supervised, too; of messages all of them

  /// "assistant", "last", "all", or one role; several names are roles. Raises Error with the nearest name.
  static TrainOn from_names(const std::vector<std::string>& names);
};

/// A text in UTF-8, and the supervised bytes: ascending, disjoint and not empty spans.
struct SupervisedText {
  std::string text;
  std::vector<ByteSpan> spans;
};

/// The messages in the first form that the template renders without a mistake and without losing a call of a tool: as they are; with
/// arguments of calls as the texts that the record gives, which some templates join; with "" for the content null. A template that loses
/// calls would teach the model to answer nothing. Raises jinja::TemplateError, or RecordError with the message's place.
Json written_messages(const ChatTemplate& chat_template, const Conversation& conversation,
                      const RenderRequest& request = {});

/// Renders a conversation and finds what is supervised.
///   plain text      all of it
///   pair of texts   the completion; with TrainOn::input also the prompt. The template is not used
///   prompt and completion as messages: everything behind the prompt
///   messages        assistant: the output of {% generation %} blocks if the template has them. Otherwise, and for other roles, the
///                   text that message k adds: rendered up to k without what is rendered up to k-1 (of an assistant: with the
///                   generation prompt, which is not supervised). So the end-of-turn token is supervised.
///                   last: only the last assistant message. all, or TrainOn::input: the whole text.
/// `end` is added to the completion of a pair and to a plain text if they do not end with it, e.g. "</s>".
/// Raises jinja::TemplateError; and RecordError, with the message's place, if a message has no place in the whole text, because the
/// template writes earlier messages otherwise when more follow, or if it has tool_calls and the template does not write them.
SupervisedText supervised_text(const ChatTemplate& chat_template, const Conversation& conversation,
                               const TrainOn& train_on = {}, const RenderRequest& request = {},
                               std::string_view end = {});

}  // namespace runner::chat
