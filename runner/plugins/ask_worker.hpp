// Questions to runner-worker, because `runner` has no LibTorch: the statements of a plug-in that needs it about itself, from a process that
// opens the library, and answers of a process that stays.
#pragma once
#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"
#include "runner/base/held_signals.hpp"

namespace runner {

/// Starts `runner-worker FLAG FILE FILE`, which reads `request` from the first file and writes its answer to the second
/// one. request["plugin"], the library, and `key`, a key of the recipe, are for messages. Throws Error(usage) with the
/// answer's "error", or if there is no answer; Error(environment) without a worker. `environment`: added to that of
/// this process.
nlohmann::json ask_worker(const std::string& flag, const nlohmann::json& request, const std::string& key,
                          const std::map<std::string, std::string>& environment = {});

/// The answer of ask_worker() about a library of [plugins] with its options. Asks once for each state of the library and each set of
/// options. Thread-safe. Throws Error(usage) also if there is no such file.
nlohmann::json ask_about_part(const std::string& flag, const std::string& library, const nlohmann::json& options,
                              const std::string& key);

/// The state of the worker's program, in the same words while it does not change. Throws Error(environment) without a worker.
std::string worker_identity();

/// A question and its answer are a line of JSON each, through the worker's stdin and stdout. The worker starts with the first question, and
/// again if it has ended. The kernel ends it with the thread that started it.
class Conversation {
 public:
  /// `purpose`: for messages, "the prediction of memory".
  Conversation(std::vector<std::string> arguments, std::string purpose);
  ~Conversation();
  Conversation(const Conversation&) = delete;

  /// The member `key` of the answer. Throws the Error that the answer has ("error", a text, and "code", an exit code);
  /// Error(environment) without a worker, if it ends without an answer, with the end of what it wrote to stderr, if its
  /// answer is none, or if it does not answer within five minutes; Error(interrupted) if a signal arrives that would
  /// end this process.
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
