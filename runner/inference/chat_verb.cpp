// `runner chat`: a conversation in the terminal, or one message on each line of a pipe.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iostream>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/generator.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* chat_commands = "/reset begins again, /exit (or Ctrl-D) ends; Ctrl-C ends an answer";

std::atomic<bool> interrupted{false};

/// Ctrl-C ends an answer. While a message is read, reading fails.
void catch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  ::sigaction(SIGINT, &action, nullptr);
}

/// Waits for a line at the terminal; false: Ctrl-C came. A signal that comes just before the wait ends it, too.
bool wait_for_line() {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, &before);
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  while (!interrupted && ::ppoll(&input, 1, nullptr, &before) < 0 && errno == EINTR) {
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return !interrupted;
}

class Dialogue {
 public:
  explicit Dialogue(const std::string& system) : system_(system) { reset(); }
  void reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }
  void say(const char* role, const std::string& text) { messages_.push_back({{"role", role}, {"content", text}}); }
  const Json& messages() const { return messages_; }
  /// Forgets the oldest question with its answer. Returns false if there is only the newest question.
  bool forget_oldest() {
    const size_t first = system_.empty() ? 0 : 1;
    if (messages_.size() < first + 3) return false;
    messages_.erase(first);
    messages_.erase(first);
    return true;
  }

 private:
  std::string system_;
  Json messages_;
};

/// The prompt of the conversation. Forgets its oldest messages while they leave no place for an answer.
Prompt fitting_prompt(const PromptReader& reader, Dialogue& conversation, int64_t max_seq_len, int64_t new_tokens) {
  auto prompt = reader.of_messages(conversation.messages());
  const int64_t most = max_seq_len - std::min(new_tokens, max_seq_len / 4);
  int64_t forgotten = 0;
  while (std::ssize(prompt.tokens) > most && conversation.forget_oldest()) {
    ++forgotten;
    prompt = reader.of_messages(conversation.messages());
  }
  if (forgotten > 0)
    log::warning(
        "the conversation is longer than the model's max_seq_len of {}: the oldest {} left out", max_seq_len,
        forgotten == 1 ? "question with its answer is" : fmt::format("{} questions with their answers are", forgotten));
  fit_with_warning(prompt, max_seq_len, new_tokens);
  return prompt;
}

/// Why a line cannot be a message; empty: it can.
std::string message_problem(const std::string& line, bool terminal) {
  constexpr size_t terminal_line = 4095;  // N_TTY_BUF_SIZE of Linux, without the line break
  if (terminal && line.size() >= terminal_line)
    return fmt::format("the terminal cuts off lines after {} bytes, so the message is not sent: pipe it in instead",
                       terminal_line);
  if (first_invalid_utf8(line)) return "the message is not UTF-8, so it is not sent";
  return "";
}

}  // namespace

ExitCode hold_chat(InferenceJob& job) {
  const auto& request = job.request;
  auto settings = generation_settings(request.generation, job.model.stored().folder, *job.tokenizer, chat_new_tokens);
  auto asked = request.prompts;
  asked.chat = true;
  const PromptReader reader(asked, job.model.stored(), *job.tokenizer);
  reader.add_end_of_turn(settings);
  const bool terminal = ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO);
  if (terminal) log::info("{}", chat_commands);
  catch_interrupt();

  Dialogue conversation(request.prompts.system);
  ReadSequence read;
  for (uint64_t turn = 0;; ++turn) {
    if (terminal) print_now("> ");
    std::string message;
    if ((terminal && !wait_for_line()) || !std::getline(std::cin, message)) break;
    if (const auto problem = message_problem(message, terminal); !problem.empty()) {
      log::warning("{}", problem);
      continue;
    }
    const auto word = std::string(trim(message));
    if (word.empty()) continue;
    if (word == "/exit" || word == "/quit") return ExitCode::done;
    if (word == "/reset") {
      conversation.reset();
      continue;
    }
    if (word.starts_with("/") && word.find(' ') == std::string::npos) {
      log::warning("{} is not a command: {}", word, chat_commands);
      continue;
    }
    conversation.say("user", message);
    interrupted = false;
    const auto prompt = fitting_prompt(reader, conversation, job.model.max_seq_len(), settings.max_new_tokens);
    Generator generator(job.model, *job.tokenizer, settings, static_cast<uint64_t>(request.seed));
    generator.stop_when(&interrupted);
    const auto answer = generator
                            .run(
                                {{.tokens = prompt.tokens, .sample = turn}},
                                [&](size_t, const std::string& text) {
                                  if (!request.json) print_now(text);
                                },
                                &read)
                            .front();
    interrupted = false;
    conversation.say("assistant", answer.text);
    if (request.json)
      print_now(line_of({{"schema", 1},
                         {"turn", turn},
                         {"message", message},
                         {"text", answer.text},
                         {"finish_reason", answer.finish},
                         {"prompt_tokens", prompt.tokens.size()},
                         {"reused_tokens", generator.times().reused_tokens},
                         {"tokens", answer.tokens.size()}}));
    else
      print_now("\n");
  }
  if (terminal) print_now("\n");
  return interrupted ? ExitCode::interrupted : ExitCode::done;
}

}  // namespace runner
