// `runner chat` at a terminal: Ctrl-C, Ctrl-D, long lines, bytes that are not UTF-8.
#include <poll.h>
#include <pty.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// `runner` at a pseudo terminal.
class TerminalSession {
 public:
  TerminalSession(const Workplace& place, std::vector<std::string> words) {
    words.insert(words.begin(), RUNNER_BINARY_DIR "/bin/runner");
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    ::setenv("RUNNER_HOME", place.home().c_str(), 1);
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~TerminalSession() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    ::close(terminal_);
  }
  void type(const std::string& text) const { REQUIRE(::write(terminal_, text.data(), text.size()) > 0); }
  /// Reads until `text` appears; returns what came before its end.
  std::string wait_for(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (unread_.find(text) == std::string::npos && std::chrono::steady_clock::now() < end) {
      pollfd ready{terminal_, POLLIN, 0};
      char buffer[4096];
      if (::poll(&ready, 1, 100) <= 0) continue;
      const auto count = ::read(terminal_, buffer, sizeof buffer);
      if (count <= 0) break;
      unread_.append(buffer, static_cast<size_t>(count));
    }
    INFO(unread_);
    const auto at = unread_.find(text);
    REQUIRE(at != std::string::npos);
    const auto read = unread_.substr(0, at + text.size());
    unread_.erase(0, read.size());
    return read;
  }
  int exit_code() {
    char buffer[4096];
    while (::read(terminal_, buffer, sizeof buffer) > 0) {
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string unread_;
};

}  // namespace

TEST_CASE("chat at a terminal: Ctrl-C ends an answer or the program, Ctrl-D ends the program", "[e2e][rank7]") {
  Workplace place;
  write_tiny_recipe(place, "\n");
  REQUIRE(place
              .run({"run", "tiny.toml", "--set", "devices.cpu_processes=1", "model.max_seq_len=8192", "data.seq_len=32",
                    "train.max_steps=2"})
              .code == 0);
  const std::vector<std::string> words = {"chat",      "last", "--chat-template", "chatml",
                                          "--threads", "1",    "--max-new-tokens"};
  auto with = [&](const std::string& tokens) {
    auto all = words;
    all.push_back(tokens);
    return all;
  };
  {
    TerminalSession session(place, with("1000000"));
    session.wait_for("> ");
    session.type("hi\n");
    session.wait_for("hi\r\n");
    ::usleep(300'000);
    session.type("\x03");
    session.wait_for("\n> ");
    session.type("\x04");
    CHECK(session.exit_code() == 0);
  }
  TerminalSession session(place, with("4"));
  session.wait_for("> ");
  session.type(std::string(4200, 'x') + "\n");
  CHECK_THAT(session.wait_for("pipe it in instead"), ContainsSubstring("the terminal cuts off lines after 4095 bytes"));
  session.type("\xff\n");
  session.wait_for("the message is not UTF-8");
  session.wait_for("> ");
  session.type("\x03");
  CHECK(session.exit_code() == 130);
}
