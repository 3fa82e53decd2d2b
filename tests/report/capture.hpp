// Two scoped helpers: Capture records the output to a file descriptor, Variable sets an environment variable.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace runner {

class Capture {
 public:
  explicit Capture(int fd) : fd_(fd), saved_(::dup(fd)), file_(std::tmpfile()) {
    std::fflush(stdout);
    ::dup2(::fileno(file_), fd_);
  }
  ~Capture() {
    restore();
    std::fclose(file_);
  }
  Capture(const Capture&) = delete;
  /// The output so far. Ends the capture.
  std::string text() {
    restore();
    std::string out;
    std::rewind(file_);
    char buffer[4096];
    while (const size_t n = std::fread(buffer, 1, sizeof buffer, file_)) out.append(buffer, n);
    return out;
  }

 private:
  void restore() {
    if (saved_ < 0) return;
    std::fflush(stdout);
    ::dup2(saved_, fd_);
    ::close(saved_);
    saved_ = -1;
  }
  int fd_, saved_;
  std::FILE* file_;
};

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace runner
