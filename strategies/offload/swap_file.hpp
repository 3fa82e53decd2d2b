// A file on a fast disk with asynchronous reads and writes. It stores the state that is offloaded to NVMe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runner/base/round_up.hpp"

namespace runner {

/// Memory for direct I/O, whose address and size are multiples of 4096: at least `bytes` bytes, uninitialised; move-only.
class AlignedBuffer {
 public:
  static constexpr int64_t alignment = 4096;
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes) : size_(round_up(bytes, alignment)) {
    if (size_ == 0) return;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, static_cast<size_t>(size_))));
    if (!data_) throw std::bad_alloc();
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept : size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    data_ = std::move(other.data_);
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), static_cast<size_t>(size_)}; }
  std::span<const std::byte> bytes() const { return {data_.get(), static_cast<size_t>(size_)}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  int64_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// Opens a nameless file for reading and writing. Returns -1 and sets errno if the folder's file system does not support that.
int open_nameless(const std::filesystem::path& folder);
/// Opens a nameless file on any file system: creates a file and unlinks it immediately. Returns -1 and sets errno on failure.
int open_unlinked(const std::filesystem::path& folder);

/// A file without a name, with its whole size reserved. However the process ends, nothing remains in the folder.
class UnnamedFile {
 public:
  /// Reserves `bytes` bytes on disk, which read as zero. `label` names the owner in messages. Throws Error(environment) if the folder
  /// does not exist or is not writable, or if there is too little space.
  UnnamedFile(std::filesystem::path folder, int64_t bytes, std::string label, bool direct);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  /// Whether I/O bypasses the page cache (O_DIRECT). Then offsets, sizes and addresses must be multiples of 4096.
  bool direct() const { return direct_; }
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }  ///< "the swap file of rank 0 in /nvme"

  /// Blocking, from any thread. Throws Error(run_failed) with the file, the offset, and the expected and actual byte counts.
  void read(int64_t offset, std::byte* into, int64_t size) const;
  void write(int64_t offset, const std::byte* from, int64_t size) const;

 private:
  struct State {
    int64_t bytes = -1, blocks = -1;  ///< blocks of 512 bytes on disk
  };
  State state() const;
  /// Throws if another process has truncated the file. `what` is the start of the message, for example "wrote".
  void refuse_cut(const char* what, int64_t offset, int64_t size) const;

  std::filesystem::path folder_;
  int64_t size_;
  std::string name_;
  int fd_ = -1;
  int64_t reserved_blocks_ = 0;
  bool direct_ = false;
};

struct SwapOptions {
  std::filesystem::path folder = {};  ///< nvme_path; must exist and be writable
  int64_t block_size = 1 << 20;       ///< bytes of one I/O, a multiple of 4096
  int queue_depth = 8;                ///< blocks in flight for each of thread_count
  int thread_count = 1;
  std::string label = "rank 0";  ///< the file's owner, for messages
  bool direct = true;            ///< bypass the page cache if the file system can
};

/// `bytes` bytes on disk, zero at first. The file disappears with the object or the process. All members may be called
/// from any thread.
class SwapFile {
 public:
  static constexpr int64_t alignment = AlignedBuffer::alignment;
  using Ticket = uint64_t;  ///< identifies one request; 0: none

  /// Reserves the whole size. Throws Error(usage) for impossible options, Error(environment) for a bad folder or a full
  /// disk.
  SwapFile(SwapOptions options, int64_t bytes);
  ~SwapFile();  ///< waits for requests in flight
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  /// Asynchronous. Offset, size and address are multiples of `alignment`. The memory must stay untouched until wait().
  /// Requests in flight have no particular order. If `after` names a request that has not been waited for, this one
  /// starts when that one has ended, and fails if it failed. A request can have one follower at most.
  Ticket read(int64_t offset, std::span<std::byte> into, Ticket after = 0);
  Ticket write(int64_t offset, std::span<const std::byte> from, Ticket after = 0);
  /// May be called once for each ticket. Throws the request's Error(run_failed).
  void wait(Ticket ticket);

  bool direct() const { return file_.direct(); }  ///< O_DIRECT was accepted
  int64_t bytes() const { return file_.size(); }
  // Bytes that were transferred so far. Tests follow the progress with them.
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }
  const SwapOptions& options() const { return options_; }

 private:
  /// One read or write. The threads of the pool execute it in pieces of block_size. After a failed piece no further
  /// piece is started.
  struct Request {
    bool writes;
    int64_t offset;
    std::byte* data;
    int64_t size;
    int64_t given = 0;  ///< bytes assigned to threads
    int running = 0;    ///< pieces in progress
    bool done = false;
    std::exception_ptr error = nullptr;
    Request* follower = nullptr;
  };

  Ticket enter(Request request, Ticket after);
  void start_threads();
  void work();
  std::exception_ptr transfer(const Request& request, int64_t begin, int64_t size);
  void carry_out_piece(std::unique_lock<std::mutex>& lock);
  void finish(Request& request);

  SwapOptions options_;
  UnnamedFile file_;
  std::atomic<int64_t> bytes_read_ = 0, bytes_written_ = 0;
  std::mutex mutex_;
  std::condition_variable work_came_, request_done_;
  std::unordered_map<Ticket, Request> requests_;  ///< requests that have not been waited for
  std::deque<Request*> queue_;                    ///< requests with unassigned bytes
  Ticket last_ticket_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace runner
