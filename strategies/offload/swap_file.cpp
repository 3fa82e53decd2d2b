#include "strategies/offload/swap_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::string why_not(const std::filesystem::path& folder, int reason) {
  using std::filesystem::file_type;
  std::error_code ignored;
  switch (std::filesystem::status(folder, ignored).type()) {
    case file_type::not_found:
      return "there is no such folder";
    case file_type::regular:
      return "that is a file, not a folder";
    default:
      return std::strerror(reason);
  }
}

int open_in(const std::filesystem::path& folder, const std::string& name) {
  int fd = open_nameless(folder);
  // Kernels without O_TMPFILE return EISDIR.
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) fd = open_unlinked(folder);
  if (fd < 0) throw environment_error("cannot open {}: {}", name, why_not(folder, errno));
  return fd;
}

/// Checks the free space before it reserves, because a request that cannot succeed must not fill the disk meanwhile.
void reserve(int fd, int64_t bytes, const std::string& name) {
  if (bytes == 0) return;
  struct statvfs disk {};
  bool known = ::fstatvfs(fd, &disk) == 0;
  auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  int reason = known && bytes > free ? ENOSPC : EINTR;
  while (reason == EINTR) reason = ::posix_fallocate(fd, 0, bytes);
  if (reason == 0) return;
  throw environment_error("cannot reserve {} ({} bytes) for {}: {}; {} are free there", format_bytes(bytes), bytes,
                          name, std::strerror(reason), known ? format_bytes(free) : "an unknown number of bytes");
}

constexpr int threads_max = 256;

SwapOptions check(SwapOptions options) {
  if (options.block_size <= 0 || options.block_size % SwapFile::alignment != 0)
    throw usage_error("block_size must be a multiple of {} bytes, not {}", SwapFile::alignment, options.block_size);
  if (options.queue_depth < 1) throw usage_error("queue_depth must be at least 1, not {}", options.queue_depth);
  if (options.thread_count < 1) throw usage_error("thread_count must be at least 1, not {}", options.thread_count);
  if (int64_t{options.queue_depth} * options.thread_count > threads_max)
    throw usage_error("thread_count x queue_depth must be at most {}, not {} x {}", threads_max, options.thread_count,
                      options.queue_depth);
  return options;
}

int64_t whole_pages(int64_t bytes) {
  RUNNER_CHECK(bytes >= 0);
  return round_up(bytes, SwapFile::alignment);
}

}  // namespace

int open_nameless(const std::filesystem::path& folder) {
  return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

int open_unlinked(const std::filesystem::path& folder) {
  auto path = (folder / ".runner-swap-XXXXXX").string();
  int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

UnnamedFile::UnnamedFile(std::filesystem::path folder, int64_t bytes, std::string label, bool direct)
    : folder_(std::move(folder)),
      size_(bytes),
      name_(fmt::format("the swap file of {} in {}", label, folder_.string())),
      fd_(open_in(folder_, name_)) {
  try {
    reserve(fd_, size_, name_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
  reserved_blocks_ = state().blocks;
  // Set only now: if the file system cannot reserve, the C library uses small writes, which O_DIRECT refuses.
  direct_ = direct && ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_DIRECT) == 0;
}

UnnamedFile::~UnnamedFile() { ::close(fd_); }

UnnamedFile::State UnnamedFile::state() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return {};
  return {static_cast<int64_t>(info.st_size), static_cast<int64_t>(info.st_blocks)};
}

void UnnamedFile::refuse_cut(const char* what, int64_t offset, int64_t size) const {
  State now = state();
  if (now.bytes != size_)
    throw run_error("{} {} bytes at offset {} of {}: the file has {} bytes and should have {}", what, size, offset,
                    name_, now.bytes, size_);
  // A write in progress while the file was truncated may have restored its length, but not its contents.
  if (now.blocks < reserved_blocks_)
    throw run_error("{} {} bytes at offset {} of {}: the file has holes, of {} bytes {} are there", what, size, offset,
                    name_, size_, now.blocks * 512);
}

void UnnamedFile::read(int64_t offset, std::byte* into, int64_t size) const {
  int64_t done = 0;
  while (done < size) {
    auto n = ::pread(fd_, into + done, static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw run_error("cannot read {} bytes at offset {} of {}: {}", size, offset, name_, std::strerror(errno));
    done += n;
    // Direct I/O cannot continue at an unaligned offset. It stopped at the end of a file that has become shorter.
    if (n == 0 || n % 4096 != 0) break;
  }
  if (done != size)
    throw run_error("read {} of {} bytes at offset {} of {}: the file has {} bytes and should have {}", done, size,
                    offset, name_, state().bytes, size_);
}

void UnnamedFile::write(int64_t offset, const std::byte* from, int64_t size) const {
  // A write past the end of a file that has become shorter would succeed and leave zeros in place of data.
  refuse_cut("did not write", offset, size);
  int64_t done = 0;
  while (done < size) {
    auto n = ::pwrite(fd_, from + done, static_cast<size_t>(size - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw run_error("cannot write {} bytes at offset {} of {}: {}", size, offset, name_, std::strerror(errno));
    done += n;
    if (n == 0 || n % 4096 != 0) break;
  }
  if (done != size) throw run_error("wrote {} of {} bytes at offset {} of {}", done, size, offset, name_);
  refuse_cut("wrote", offset, size);
}

SwapFile::SwapFile(SwapOptions options, int64_t bytes)
    : options_(check(std::move(options))),
      file_(options_.folder, whole_pages(bytes), options_.label, options_.direct) {}

SwapFile::~SwapFile() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_came_.notify_all();
  for (auto& thread : threads_) thread.join();
}

SwapFile::Ticket SwapFile::read(int64_t offset, std::span<std::byte> into, Ticket after) {
  return enter({.writes = false, .offset = offset, .data = into.data(), .size = std::ssize(into)}, after);
}

SwapFile::Ticket SwapFile::write(int64_t offset, std::span<const std::byte> from, Ticket after) {
  auto* data = const_cast<std::byte*>(from.data());
  return enter({.writes = true, .offset = offset, .data = data, .size = std::ssize(from)}, after);
}

SwapFile::Ticket SwapFile::enter(Request request, Ticket after) {
  RUNNER_CHECK(request.offset >= 0 && request.offset % alignment == 0 && request.size % alignment == 0 &&
                   reinterpret_cast<uintptr_t>(request.data) % alignment == 0,
               "{} bytes at offset {}: not aligned", request.size, request.offset);
  RUNNER_CHECK(request.size > 0 && request.offset + request.size <= bytes(), "{} bytes at offset {} of {}",
               request.size, request.offset, bytes());
  std::lock_guard lock(mutex_);
  if (threads_.empty()) start_threads();
  Request* before = nullptr;
  if (after != 0) {
    auto found = requests_.find(after);
    RUNNER_CHECK(found != requests_.end() && !found->second.follower, "request {} cannot be followed", after);
    before = &found->second;
  }
  auto& entered = requests_[++last_ticket_] = request;
  if (before && !before->done) {
    before->follower = &entered;
  } else if (before && before->error) {
    entered.error = before->error;
    finish(entered);
  } else {
    queue_.push_back(&entered);
    work_came_.notify_all();
  }
  return last_ticket_;
}

void SwapFile::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  auto found = requests_.find(ticket);
  RUNNER_CHECK(found != requests_.end(), "no request {} to wait for", ticket);
  Request& request = found->second;
  request_done_.wait(lock, [&] { return request.done; });
  auto error = request.error;
  requests_.erase(ticket);
  if (error) std::rethrow_exception(error);
}

/// Fewer threads than requested are enough.
void SwapFile::start_threads() {
  BlockedSignals blocked;
  try {
    for (int i = 0; i < options_.thread_count * options_.queue_depth; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    if (threads_.empty()) throw environment_error("cannot start a thread for {}: {}", file_.name(), error.what());
  }
}

void SwapFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    carry_out_piece(lock);
  }
}

std::exception_ptr SwapFile::transfer(const Request& request, int64_t begin, int64_t size) {
  try {
    if (request.writes)
      file_.write(request.offset + begin, request.data + begin, size);
    else
      file_.read(request.offset + begin, request.data + begin, size);
  } catch (...) {
    return std::current_exception();
  }
  (request.writes ? bytes_written_ : bytes_read_) += size;
  return nullptr;
}

void SwapFile::carry_out_piece(std::unique_lock<std::mutex>& lock) {
  Request& request = *queue_.front();
  auto begin = request.given, size = std::min(options_.block_size, request.size - begin);
  request.given += size;
  ++request.running;
  if (request.given == request.size) queue_.pop_front();
  lock.unlock();
  auto error = transfer(request, begin, size);
  lock.lock();
  --request.running;
  if (error) {
    if (!request.error) request.error = error;
    if (request.given < request.size) std::erase(queue_, &request);
    request.given = request.size;
  }
  if (request.running == 0 && request.given == request.size) finish(request);
}

void SwapFile::finish(Request& request) {
  request.done = true;
  request_done_.notify_all();
  if (!request.follower) return;
  if (request.error) {
    request.follower->error = request.error;
    finish(*request.follower);
  } else {
    queue_.push_back(request.follower);
    work_came_.notify_all();
  }
}

}  // namespace runner
