#include "runner/inference/line_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/json_text.hpp"

namespace runner {

std::string line_of(const nlohmann::ordered_json& json) { return json_text(json) + "\n"; }

void print_now(const std::string& text) {
  [[maybe_unused]] static const auto ignored = std::signal(SIGPIPE, SIG_IGN);  // the write below fails instead
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw Error(ExitCode::interrupted, closed_output);
  throw environment_error("cannot write to standard output: {}", std::strerror(errno));
}

fs::path unfinished_output(const std::string& file, int64_t pid) { return file + "." + std::to_string(pid) + ".tmp"; }

LineOutput::LineOutput(const std::string& file) : file_(file) {
  if (file_.empty()) return;
  std::error_code ignored;
  if (fs::is_directory(file_, ignored)) throw environment_error("cannot write {}: it is a folder", file);
  const bool device = fs::exists(file_, ignored) && !fs::is_regular_file(file_, ignored);
  if (!device) temporary_ = unfinished_output(file, ::getpid());
  descriptor_ = ::open((device ? file_ : temporary_).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw environment_error("cannot write {}: {}", file, std::strerror(errno));
}

LineOutput::~LineOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (descriptor_ >= 0 && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void LineOutput::add(const std::string& text) {
  if (file_.empty()) return print_now(text);
  waiting_ += text;
  constexpr size_t much = 1 << 20;
  if (waiting_.size() > much) flush();
}

void LineOutput::flush() {
  for (size_t done = 0; done < waiting_.size();) {
    const auto count = ::write(descriptor_, waiting_.data() + done, waiting_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw environment_error("cannot write {}: {}", file_.string(), std::strerror(errno));
    done += static_cast<size_t>(count);
  }
  waiting_.clear();
}

void LineOutput::finish() {
  if (file_.empty()) return;
  flush();
  if (temporary_.empty()) return;
  if (::fsync(descriptor_) != 0) throw environment_error("cannot write {}: {}", file_.string(), std::strerror(errno));
  if (::rename(temporary_.c_str(), file_.c_str()) != 0)
    throw environment_error("cannot write {}: {}", file_.string(), std::strerror(errno));
  ::close(descriptor_);
  descriptor_ = -1;
  sync_path(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
}

}  // namespace runner
