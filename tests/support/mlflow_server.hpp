// A server of MLflow for tests: tests/support/mlflow_stub.py, or a real one.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/wait_until.hpp"

namespace runner::testing {

/// If RUNNER_TEST_MLFLOW is a URL, that server is used where a test allows it.
class MlflowServer {
 public:
  enum class Kind { any, stub, hanging, not_json, too_long };
  /// `port`: of the stub; "0" is a free one.
  explicit MlflowServer(const std::filesystem::path& folder, Kind kind = Kind::any, const std::string& port = "0")
      : folder_(folder / "mlflow") {
    std::filesystem::create_directories(folder_);
    if (const char* real = std::getenv("RUNNER_TEST_MLFLOW"); real && kind == Kind::any) {
      uri_ = real;
      return;
    }
    std::filesystem::remove(folder_ / "port");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setenv("STUB_PORT", port.c_str(), 1);
      const char* behaviour = kind == Kind::hanging    ? "--hang"
                              : kind == Kind::not_json ? "--not-json"
                              : kind == Kind::too_long ? "--too-long"
                                                       : nullptr;
      ::execlp("python3", "python3", RUNNER_SOURCE_DIR "/tests/support/mlflow_stub.py", folder_.c_str(), behaviour,
               nullptr);
      ::_exit(127);
    }
    REQUIRE(wait_until([&] { return std::filesystem::exists(folder_ / "port"); }, 60));
    uri_ = "http://127.0.0.1:" + text_of(folder_ / "port");
  }
  ~MlflowServer() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  MlflowServer(const MlflowServer&) = delete;

  const std::string& uri() const { return uri_; }
  std::string port() const { return uri_.substr(uri_.rfind(':') + 1); }
  /// The server's runs for a run of the ledger, newest first; see read_mlflow.py. Empty while there is no such experiment.
  nlohmann::json runs(const std::string& run, const std::string& experiment) const {
    const auto out = folder_ / "runs.json";
    const std::string command = "python3 " RUNNER_SOURCE_DIR "/tests/support/read_mlflow.py " + uri_ + " " +
                                experiment + " " + run + " >" + out.string();
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
    return nlohmann::json::parse(text_of(out));
  }

 private:
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::filesystem::path folder_;
  pid_t pid_ = 0;
  std::string uri_;
};

}  // namespace runner::testing
