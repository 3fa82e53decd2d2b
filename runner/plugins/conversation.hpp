// A process of runner-worker that stays and answers questions: `runner` has no LibTorch.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner {

/// A question and its answer are a line of JSON each, through the worker's stdin and stdout. The worker starts with the first question, and
/// again if it has ended. The kernel ends it with the thread that started it.
class Conversation {
 public:
  /// `purpose`: for messages, "the prediction of memory".
  Conversation(std::vector<std::string> arguments, std::string purpose);
  ~Conversation();
  Conversation(const Conversation&) = delete;

  /// Throws Error(usage) with the answer's "error"; Error(environment) without a worker, if it ends without an answer, or if it does not
  /// answer within five minutes.
  nlohmann::json ask(const nlohmann::json& question);

 private:
  void start();
  void stop();
  bool send(const std::string& line);
  bool receive(std::string& line);

  std::vector<std::string> arguments_;
  std::string purpose_;
  pid_t process_ = 0;
  Descriptor socket_;
  std::string received_;  ///< after the last line
};

}  // namespace runner
