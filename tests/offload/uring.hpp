// A minimal io_uring by system calls that keeps a number of blocks in flight. The benchmark uses it.
#pragma once
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace runner {

class Uring {
 public:
  explicit Uring(unsigned depth) : depth_(depth) {
    io_uring_params params{};
    fd_ = static_cast<int>(::syscall(SYS_io_uring_setup, depth, &params));
    if (fd_ < 0) throw std::runtime_error("no io_uring here");
    auto* submission = map(params.sq_off.array + params.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    auto* completion = map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
    tail_ = word(submission, params.sq_off.tail);
    submission_mask_ = *word(submission, params.sq_off.ring_mask);
    array_ = word(submission, params.sq_off.array);
    completed_head_ = word(completion, params.cq_off.head);
    completed_tail_ = word(completion, params.cq_off.tail);
    completion_mask_ = *word(completion, params.cq_off.ring_mask);
    completed_ = reinterpret_cast<io_uring_cqe*>(completion + params.cq_off.cqes);
  }
  ~Uring() {
    for (auto [data, bytes] : maps_) ::munmap(data, bytes);
    ::close(fd_);
  }
  Uring(const Uring&) = delete;

  /// Transfers `bytes` between `memory` and the start of `file`, with `depth` blocks in flight.
  void transfer(int file, bool writes, std::byte* memory, int64_t bytes, int64_t block) {
    int64_t given = 0, done = 0, in_flight = 0;
    while (done < bytes) {
      unsigned fresh = 0;
      for (; given < bytes && in_flight < depth_; given += block, ++in_flight, ++fresh)
        put(file, writes, memory + given, std::min(block, bytes - given), given);
      if (::syscall(SYS_io_uring_enter, fd_, fresh, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0)
        throw std::runtime_error("io_uring_enter failed");
      for (unsigned head = *completed_head_; head != std::atomic_ref(*completed_tail_).load(); ++head, --in_flight) {
        auto result = completed_[head & completion_mask_].res;
        if (result <= 0) throw std::runtime_error(std::strerror(-result));
        done += result;
        std::atomic_ref(*completed_head_).store(head + 1);
      }
    }
  }

 private:
  std::byte* map(size_t bytes, off_t offset) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (data == MAP_FAILED) throw std::runtime_error("io_uring's rings cannot be mapped");
    maps_.emplace_back(data, bytes);
    return static_cast<std::byte*>(data);
  }
  static unsigned* word(std::byte* ring, unsigned offset) { return reinterpret_cast<unsigned*>(ring + offset); }

  void put(int file, bool writes, std::byte* data, int64_t size, int64_t offset) {
    unsigned tail = *tail_, slot = tail & submission_mask_;
    io_uring_sqe entry{};
    entry.opcode = writes ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = file;
    entry.addr = reinterpret_cast<uint64_t>(data);
    entry.len = static_cast<uint32_t>(size);
    entry.off = static_cast<uint64_t>(offset);
    entries_[slot] = entry;
    array_[slot] = slot;
    std::atomic_ref(*tail_).store(tail + 1);
  }

  int64_t depth_;
  std::vector<std::pair<void*, size_t>> maps_;
  int fd_;
  io_uring_sqe* entries_;
  io_uring_cqe* completed_;
  unsigned *tail_, *array_, *completed_head_, *completed_tail_;
  unsigned submission_mask_, completion_mask_;
};

}  // namespace runner
