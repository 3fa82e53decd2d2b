// A file on a fast disk with asynchronous reads and writes: the memory of what is offloaded to NVMe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "strategies/offload/aligned_buffer.hpp"
#include "strategies/offload/unnamed_file.hpp"

namespace runner {

struct SwapOptions {
  std::filesystem::path folder = {};  ///< nvme_path; must exist and be writable
  int64_t block_size = 1 << 20;       ///< bytes of one I/O, a multiple of 4096
  int queue_depth = 8;                ///< blocks in flight for each of thread_count
  int thread_count = 1;
  std::string label = "rank 0";  ///< whose file, in messages
  bool direct = true;            ///< past the page cache where the file system can
};

/// `bytes` on the disk, zero at first, gone with the object or the process. Every member may be called from any thread.
class SwapFile {
 public:
  static constexpr int64_t alignment = AlignedBuffer::alignment;
  using Ticket = uint64_t;  ///< of one request; 0 is none

  /// Reserves the whole size. Throws Error(usage) for options that cannot be, Error(environment) for the folder and a
  /// full disk.
  SwapFile(SwapOptions options, int64_t bytes);
  ~SwapFile();  ///< waits for what is in flight
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  /// Asynchronous. Offset, size and address are multiples of `alignment`; the memory stays the request's until wait().
  /// Requests in flight together have no particular order. `after` is a request that has not been waited for: this one
  /// begins when that has ended, and fails as that did. A request has one follower at most.
  Ticket read(int64_t offset, std::span<std::byte> into, Ticket after = 0);
  Ticket write(int64_t offset, std::span<const std::byte> from, Ticket after = 0);
  /// Each ticket once. Throws the request's Error(run_failed).
  void wait(Ticket ticket);

  bool direct() const { return file_.direct(); }  ///< O_DIRECT was accepted
  int64_t bytes() const { return file_.size(); }
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }
  const SwapOptions& options() const { return options_; }

 private:
  /// One read or write. Threads of the pool carry it out in pieces of block_size; after a failed piece no more are
  /// begun.
  struct Request {
    bool writes;
    int64_t offset;
    std::byte* data;
    int64_t size;
    int64_t given = 0;  ///< bytes that threads have taken on
    int running = 0;    ///< pieces that threads are at
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
  std::unordered_map<Ticket, Request> requests_;  ///< until they are waited for
  std::deque<Request*> queue_;                    ///< that have bytes to give
  Ticket last_ticket_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace runner
