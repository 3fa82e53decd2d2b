// A process of runner-worker that stays and answers questions: `runner` has no LibTorch.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"
#include "runner/base/held_signals.hpp"

namespace runner {

/// A question and its answer are a line of JSON each, through the worker's stdin and stdout. The worker starts with the first question, and
/// again if it has ended. The kernel ends it with the thread that started it.
class Conversation {
 public:
  /// `purpose`: for messages, "the prediction of memory".
  Conversation(std::vector<std::string> arguments, std::string purpose);
  ~Conversation();
  Conversation(const Conversation&) = delete;

  /// The member `key` of the answer. Throws the Error that the answer has ("error", a text, and "code", an exit code); Error(environment)
  /// without a worker, if it ends without an answer, with the end of what it wrote to stderr, if its answer is none, or if it does not answer
  /// within five minutes; Error(interrupted) if a signal arrives that would end this process.
  nlohmann::json ask(const nlohmann::json& question, const std::string& key);

 private:
  void start();
  void stop();
  bool send(const std::string& line);
  bool receive(std::string& line, const HeldSignals& signals);
  std::string answer_to(const std::string& line, const HeldSignals& signals);
  std::string last_words() const;

  std::vector<std::string> arguments_;
  std::string purpose_;
  pid_t process_ = 0;
  Descriptor socket_, log_;  ///< log_: of its stderr
  std::string received_;     ///< after the last line
};

}  // namespace runner
