#include "runner/inference/prompts.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/chat/loss_spans.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/inference/text_records.hpp"

namespace runner {

namespace {

using Json = nlohmann::ordered_json;

/// Removes the answer that ends the messages of a record, and says whether there was one. Throws Error(usage) if nothing is left.
bool drop_answer(Json& messages) {
  const auto is_answer = [](const Json& message) {
    return message.is_object() && message.contains("role") && message["role"] == "assistant";
  };
  const size_t all = messages.is_array() ? messages.size() : 0;
  while (all > 0 && !messages.empty() && is_answer(messages.back())) messages.erase(messages.size() - 1);
  if (all > 0 && messages.empty()) throw usage_error("`messages` has only messages of the assistant, and no question");
  return all > 0 && messages.size() < all;
}

}  // namespace

PromptReader::PromptReader(const PromptsRequest& request, const StoredModel& model, const Tokenizer& tokenizer)
    : request_(request), tokenizer_(tokenizer), special_tokens_(model.recipe.data.train.empty()) {
  auto data = model.recipe.data;
  if (!request.chat_template.empty()) data.chat_template = request.chat_template;
  try {
    template_ = chat_template_of(data, chat::Layout::messages);
  } catch (const Error& error) {
    if (request.chat || !request.chat_template.empty()) throw;
    no_template_ = error.what();
  }
}

Prompt PromptReader::of_text(const std::string& text) const {
  if (const auto bad = first_invalid_utf8(text)) throw usage_error("the prompt is not UTF-8: byte {} is wrong", *bad);
  if (request_.chat) {
    auto messages = Json::array();
    if (!request_.system.empty()) messages.push_back({{"role", "system"}, {"content", request_.system}});
    messages.push_back({{"role", "user"}, {"content", text}});
    return of_messages(messages);
  }
  Prompt prompt{.id = nullptr, .text = text, .tokens = tokenizer_.encode(text, special_tokens_)};
  if (prompt.tokens.empty()) {
    const auto roles = tokenizer_.special_tokens();
    const auto first = roles.bos ? roles.bos : roles.eos;
    if (!first) throw usage_error("the prompt is empty, and the tokenizer has no token that begins a text");
    prompt.tokens.push_back(*first);
  }
  return prompt;
}

Prompt PromptReader::of_messages(const Json& messages) const {
  if (!template_) throw usage_error("messages need a chat template: {}", no_template_);
  Prompt prompt{.id = nullptr, .text = template_->render(messages, {.add_generation_prompt = true}).text};
  prompt.of_messages = true;
  prompt.tokens = tokenizer_.encode(prompt.text);
  return prompt;
}

void PromptReader::add_end_of_turn(GenerationSettings& settings) const {
  if (!template_) return;
  const std::string mark = "(the answer)";
  std::string after;
  try {
    after = template_->render({{{"role", "user"}, {"content", "."}}, {{"role", "assistant"}, {"content", mark}}}).text;
  } catch (const Error&) {
    return;  // a template of another kind of messages
  }
  const auto at = after.rfind(mark);
  if (at == std::string::npos) return;
  after = after.substr(at + mark.size());
  const auto tokens = tokenizer_.encode(after);
  if (!tokens.empty() && tokenizer_.is_special(tokens.front())) {
    if (std::ranges::find(settings.eos, tokens.front()) == settings.eos.end()) settings.eos.push_back(tokens.front());
  } else if (!trim(after).empty()) {
    settings.stop.push_back(after);
  }
}

Prompt PromptReader::of_record(const Json& record) const {
  if (record.is_string()) return of_text(record.get<std::string>());
  if (!record.is_object()) throw usage_error("is neither a JSON object nor a JSON string");
  try {
    if (record.contains("messages")) {
      chat::Conversation conversation;
      auto messages = record["messages"];
      const bool answered = drop_answer(messages);
      add_messages(conversation, messages, "/messages");
      auto prompt = of_messages(template_ ? written_messages(*template_, conversation, {.add_generation_prompt = true})
                                          : conversation.messages);
      prompt.answered = answered;
      return prompt;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {  // of the chat template
    throw usage_error("{}", error.what());
  }
  if (record.contains("instruction") && !record.contains("prompt"))
    throw usage_error("the record has `instruction`, which only trainings read: write `prompt` (a text) or `messages`");
  for (const char* key : {"prompt", "text", "input", "question"})
    if (record.contains(key) && record[key].is_string()) return of_text(record[key].get<std::string>());
  throw usage_error("the record has neither `prompt` (a text) nor `messages` (a list)");
}

std::vector<Prompt> PromptReader::read() const {
  std::vector<Prompt> prompts;
  for (const auto& text : request_.texts) prompts.push_back(of_text(text));
  if (!request_.file.empty()) {
    if (!request_.records) {
      const auto content = content_of(request_.file);
      check_record_bytes(content, [&] { return shown_file(request_.file); });
      if (const auto bad = first_invalid_utf8(content))
        throw usage_error("{}: byte {} is not UTF-8", shown_file(request_.file), *bad);
      prompts.push_back(of_text(content));
    } else {
      const auto add = [&](const Json& record, const std::string&, Json id) {
        prompts.push_back(of_record(record));
        prompts.back().id = std::move(id);
      };
      for_each_record(request_.file, add, prompts.size());
    }
  }
  if (prompts.empty())
    throw usage_error("there is no prompt{}", request_.file.empty() ? "" : " in " + shown_file(request_.file));
  for (size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].id.is_null()) prompts[i].id = i;
  if (const auto count = std::ranges::count(prompts, true, &Prompt::answered); count > 0)
    log::info("note: {} ended with an answer of the assistant, which is not part of the prompt",
              counted(count, "record"));
  return prompts;
}

void fit_prompt(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens) {
  if (std::ssize(prompt.tokens) < max_seq_len) return;
  const int64_t kept = std::max<int64_t>(1, max_seq_len - std::min(new_tokens, max_seq_len / 2));
  prompt.dropped = std::ssize(prompt.tokens) - kept;
  prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.begin() + prompt.dropped);
}

}  // namespace runner
