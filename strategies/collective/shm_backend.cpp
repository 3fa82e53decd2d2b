#include "strategies/collective/shm_backend.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>

#include "strategies/collective/completed_work.hpp"
#include "strategies/collective/reduction.hpp"

namespace runner {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class ShmTransfer : public c10d::Work {
 public:
  ShmTransfer(at::Tensor tensor, const Operation& message) : tensor_(std::move(tensor)), message_(message) {}

  void synchronize() override {}

  /// Wakes those that wait for the transfer. They may then end the channel.
  void end(std::exception_ptr error) { finish(std::move(error)); }

  void move(SegmentGroup& group) {
    group.announce(message_);
    auto* data = static_cast<std::byte*>(tensor_.data_ptr());
    size_t total = tensor_.nbytes(), done = 0;
    do {
      size_t count = std::min(shm_chunk_bytes, total - done);
      if (group.rank() == 0) {
        std::memcpy(group.free_chunk(message_), data + done, count);
        group.pass_on();
      } else {
        std::memcpy(data + done, group.filled_chunk(message_), count);
        group.give_back();
      }
      done += count;
    } while (done < total);
    tensor_.reset();  // a tensor belongs to its rank alone when the transfer has ended
  }

 private:
  at::Tensor tensor_;
  Operation message_;
};

/// Transfers over shared memory: one thread of each of two ranks moves the messages, so that the ranks go on.
/// A channel is one rank's end. The first rank of the group sends, the second one receives. Messages of any size go through the ring of
/// the group, in order.
class ShmChannel {
 public:
  explicit ShmChannel(SegmentGroup& group) : group_(group), thread_([this] { run(); }) {}
  /// Transfers that have not ended fail, on both ranks.
  ~ShmChannel() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      if (!queue_.empty()) group_.abort();
    }
    wake_.notify_one();
    thread_.join();
  }

  ShmChannel(const ShmChannel&) = delete;
  ShmChannel& operator=(const ShmChannel&) = delete;

  /// Queues a transfer from or to a contiguous CPU tensor, and returns. Both ranks give the same `message`, else the transfer fails.
  WorkPtr start(const at::Tensor& tensor, const Operation& message) {
    auto transfer = c10::make_intrusive<ShmTransfer>(tensor, message);
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(transfer);
    }
    wake_.notify_one();
    return transfer;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto transfer = queue_.front();
      lock.unlock();
      std::exception_ptr error;
      try {
        transfer->move(group_);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      queue_.pop_front();
      lock.unlock();
      transfer->end(error);
      transfer.reset();
      lock.lock();
    }
  }

  SegmentGroup& group_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<c10::intrusive_ptr<ShmTransfer>> queue_;  ///< the first one is being moved
  bool stop_ = false;
  std::thread thread_;
};

std::byte* bytes_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "shared-memory collectives take contiguous CPU tensors");
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// The range [begin, end) of `count` elements that belongs to `part` of `parts`.
std::pair<int64_t, int64_t> share(int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

/// The only tensor of a collective. c10d allows one for each device; here others would be left as they are.
at::Tensor& only(std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "a collective over shared memory takes one tensor, not ", tensors.size());
  return tensors[0];
}

class ShmBackend : public c10d::Backend {
 public:
  explicit ShmBackend(std::unique_ptr<SegmentGroup> group)
      : Backend(group->rank(), group->size()), group_(std::move(group)) {}

  const std::string getBackendName() const override { return "shm"; }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    auto& tensor = only(tensors);
    auto reduce = reduction_of(tensor.scalar_type(), options.reduceOp.op_);
    begin(Collective::all_reduce, tensor, 0, options.reduceOp.op_);
    tensor.nbytes() <= shm_small_bytes ? reduce_small(tensor, reduce) : reduce_chunks(tensor, reduce, true);
    return completed(tensors);
  }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    auto& tensor = only(tensors);
    auto* data = bytes_of(tensor);
    int64_t total = static_cast<int64_t>(tensor.nbytes()), chunk = static_cast<int64_t>(shm_chunk_bytes), done = 0;
    int root = static_cast<int>(options.rootRank);
    begin(Collective::broadcast, tensor, root);
    do {
      size_t count = static_cast<size_t>(std::min(chunk, total - done));
      int half = half_ ^= 1;
      if (rank_ == root) std::memcpy(group_->slot(root, half), data + done, count);
      meet();
      if (rank_ != root) std::memcpy(data + done, group_->slot(root, half), count);
      done += static_cast<int64_t>(count);
    } while (done < total);
    return completed(tensors);
  }

  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    auto& tensor = only(tensors);
    auto reduce = reduction_of(tensor.scalar_type(), options.reduceOp.op_);
    begin(Collective::reduce, tensor, options.rootRank, options.reduceOp.op_);
    reduce_chunks(tensor, reduce, rank_ == options.rootRank);
    return completed(tensors);
  }

  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    auto& input = inputs.at(0);
    auto flat = at::empty({input.numel() * size_}, input.options());
    auto contiguous = input.contiguous();
    _allgather_base(flat, contiguous, options);
    for (int r = 0; r < size_; ++r) {
      auto part = flat.narrow(0, r * input.numel(), input.numel());
      outputs.at(0).at(static_cast<size_t>(r)).copy_(part.view(input.sizes()));
    }
    return completed(outputs.at(0));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    TORCH_CHECK(output.numel() == input.numel() * size_ && output.scalar_type() == input.scalar_type(),
                "all_gather: the output must hold ", size_, " times the input");
    auto *in = bytes_of(input), *out = bytes_of(output);
    int64_t total = static_cast<int64_t>(input.nbytes()), chunk = static_cast<int64_t>(shm_chunk_bytes), done = 0;
    begin(Collective::all_gather, output);
    if (out + rank_ * total != in) std::memcpy(out + rank_ * total, in, static_cast<size_t>(total));
    do {
      size_t count = static_cast<size_t>(std::min(chunk, total - done));
      int half = half_ ^= 1;
      std::memcpy(group_->slot(rank_, half), in + done, count);
      meet();
      for (int r = 0; r < size_; ++r)
        if (r != rank_) std::memcpy(out + r * total + done, group_->slot(r, half), count);
      done += static_cast<int64_t>(count);
    } while (done < total);
    return completed({output});
  }

  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    std::vector<at::Tensor> rows;
    for (const auto& tensor : inputs.at(0)) rows.push_back(tensor.reshape({-1}));
    auto flat = at::cat(rows);
    return _reduce_scatter_base(outputs.at(0), flat, options);
  }

  /// A slot holds the same piece of every rank's part, one after another.
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK(input.numel() == output.numel() * size_ && output.scalar_type() == input.scalar_type(),
                "reduce_scatter: the input must hold ", size_, " times the output");
    int64_t element = input.element_size(), part = output.numel();
    int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(shm_chunk_bytes) / element / size_);
    auto *in = bytes_of(input), *out = bytes_of(output);
    auto reduce = reduction_of(input.scalar_type(), options.reduceOp.op_);
    begin(Collective::reduce_scatter, input, 0, options.reduceOp.op_);
    int64_t done = 0;
    do {
      int64_t count = std::min(chunk, part - done);
      size_t bytes = static_cast<size_t>(count * element);
      int half = half_ ^= 1;
      auto* slot = group_->slot(rank_, half);
      for (int r = 0; r < size_; ++r)
        if (r != rank_) std::memcpy(slot + static_cast<size_t>(r) * bytes, in + (r * part + done) * element, bytes);
      meet();
      std::vector<const std::byte*> rows(static_cast<size_t>(size_));
      for (int r = 0; r < size_; ++r)
        rows[static_cast<size_t>(r)] = group_->slot(r, half) + static_cast<size_t>(rank_) * bytes;
      rows[static_cast<size_t>(rank_)] = in + (rank_ * part + done) * element;  // its own part needs no staging
      reduce(rows.data(), size_, out + done * element, count);
      done += count;
    } while (done < part);
    return completed({output});
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    if (!input_splits.empty() || !output_splits.empty())
      return alltoall_split(output, input, output_splits, input_splits);
    TORCH_CHECK(output.numel() == input.numel() && input.numel() % size_ == 0, "all_to_all: ", input.numel(),
                " elements for ", size_, " ranks");
    auto *in = bytes_of(input), *out = bytes_of(output);
    int64_t part = static_cast<int64_t>(input.nbytes()) / size_, chunk = static_cast<int64_t>(shm_chunk_bytes) / size_,
            done = 0;
    begin(Collective::all_to_all, input);
    do {
      size_t count = static_cast<size_t>(std::min(chunk, part - done));
      int half = half_ ^= 1;
      for (int r = 0; r < size_; ++r)
        std::memcpy(group_->slot(rank_, half) + static_cast<size_t>(r) * count, in + r * part + done, count);
      meet();
      for (int r = 0; r < size_; ++r)
        std::memcpy(out + r * part + done, group_->slot(r, half) + static_cast<size_t>(rank_) * count, count);
      done += static_cast<int64_t>(count);
    } while (done < part);
    return completed({output});
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override {
    begin(Collective::barrier, at::empty({0}, torch::kUInt8));
    meet();
    return completed({});
  }
  /// The first rank of a group of two sends, the second one receives. Such a group has no collectives. `tag`: a number that must be the
  /// same on both ranks.
  WorkPtr send(std::vector<at::Tensor>& tensors, int, int tag) override { return transfer(only(tensors), tag); }
  WorkPtr recv(std::vector<at::Tensor>& tensors, int, int tag) override { return transfer(only(tensors), tag); }
  void abort() override { group_->abort(); }

 private:
  /// Ranks first exchange how their inputs are split. Then all inputs pass through the slots in chunks, and each rank copies the
  /// parts that are for it.
  WorkPtr alltoall_split(at::Tensor& output, at::Tensor& input, const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits) {
    auto sum = [](const std::vector<int64_t>& splits) {
      return std::accumulate(splits.begin(), splits.end(), int64_t{0});
    };
    auto parts = static_cast<size_t>(size_);
    TORCH_CHECK(input_splits.size() == parts && output_splits.size() == parts && sum(input_splits) == input.numel() &&
                    sum(output_splits) == output.numel() && output.scalar_type() == input.scalar_type(),
                "all_to_all: splits of ", size_, " ranks that add up to the tensors");
    int64_t element = input.element_size(), total = static_cast<int64_t>(input.nbytes()),
            chunk = static_cast<int64_t>(shm_chunk_bytes);
    auto *in = bytes_of(input), *out = bytes_of(output);
    begin(Collective::all_to_all, input);
    int half = half_ ^= 1;
    std::memcpy(group_->slot(rank_, half), input_splits.data(), parts * sizeof(int64_t));
    meet();
    struct Range {
      int64_t begin, end, to;  ///< bytes of a rank's input that are for this rank, and their destination
    };
    std::vector<Range> ranges;
    int64_t received = 0;
    for (int r = 0; r < size_; ++r) {
      std::vector<int64_t> splits(parts);
      std::memcpy(splits.data(), group_->slot(r, half), parts * sizeof(int64_t));
      int64_t before = std::accumulate(splits.begin(), splits.begin() + rank_, int64_t{0});
      auto mine = static_cast<size_t>(rank_), from = static_cast<size_t>(r);
      TORCH_CHECK(splits[mine] == output_splits[from], "all_to_all: rank ", r, " sends ", splits[mine],
                  " elements where rank ", rank_, " takes ", output_splits[from]);
      ranges.push_back({before * element, (before + splits[mine]) * element, received});
      received += splits[mine] * element;
    }
    for (int64_t done = 0; done < total; done += chunk) {
      int64_t end = std::min(done + chunk, total);
      half = half_ ^= 1;
      std::memcpy(group_->slot(rank_, half), in + done, static_cast<size_t>(end - done));
      meet();
      for (int r = 0; r < size_; ++r) {
        const Range& range = ranges[static_cast<size_t>(r)];
        int64_t from = std::max(done, range.begin), to = std::min(end, range.end);
        if (from < to)
          std::memcpy(out + range.to + from - range.begin, group_->slot(r, half) + from - done,
                      static_cast<size_t>(to - from));
      }
    }
    return completed({output});
  }

  WorkPtr transfer(const at::Tensor& tensor, int number) {
    TORCH_CHECK(channel_ || sequence_ == 0,
                "a group over shared memory has either collectives or transfers, so no transfer after a collective");
    auto message = next(Collective::transfer, tensor, number, c10d::ReduceOp::SUM);
    if (!channel_) channel_ = std::make_unique<ShmChannel>(*group_);
    return channel_->start(tensor, message);
  }

  /// The next operation over `payload`, the whole tensor that it works on.
  Operation next(Collective kind, const at::Tensor& payload, int64_t root, c10d::ReduceOp::RedOpType reduction) {
    bytes_of(payload);  // a wrong tensor fails on this rank only, before anything is announced
    return {.sequence = ++sequence_,
            .bytes = payload.nbytes(),
            .kind = kind,
            .dtype = static_cast<int8_t>(payload.scalar_type()),
            .reduction = static_cast<uint8_t>(reduction),
            .root = static_cast<uint32_t>(root)};
  }

  /// Announces a collective.
  void begin(Collective kind, const at::Tensor& payload, int64_t root = 0,
             c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM) {
    TORCH_CHECK(!channel_, "a group over shared memory has either collectives or transfers, so no ", name_of(kind),
                " after a transfer");
    group_->announce(next(kind, payload, root, reduction));
    checked_ = false;
  }

  /// The barrier after the first chunk is in the slots. Here ranks also detect that their operations differ.
  void meet() {
    group_->barrier();
    if (!checked_) group_->check_agreement();
    checked_ = true;
  }

  /// `receives`: whether the result goes into `tensor`.
  /// In each chunk a rank reduces its share in place in its own slot. No other rank reads or writes that share of any slot.
  void reduce_chunks(at::Tensor& tensor, Reduction reduce, bool receives) {
    int64_t element = tensor.element_size(), chunk = static_cast<int64_t>(shm_chunk_bytes) / element;
    auto* data = bytes_of(tensor);
    std::vector<const std::byte*> in(static_cast<size_t>(size_));
    int64_t done = 0;
    do {
      int64_t count = std::min(chunk, tensor.numel() - done);
      int half = half_ ^= 1;
      std::memcpy(group_->slot(rank_, half), data + done * element, static_cast<size_t>(count * element));
      meet();
      auto [begin, end] = share(count, rank_, size_);
      for (int r = 0; r < size_; ++r) in[static_cast<size_t>(r)] = group_->slot(r, half) + begin * element;
      reduce(in.data(), size_, group_->slot(rank_, half) + begin * element, end - begin);
      group_->barrier();
      for (int r = 0; receives && r < size_; ++r) {
        auto [from, to] = share(count, r, size_);
        std::memcpy(data + (done + from) * element, group_->slot(r, half) + from * element,
                    static_cast<size_t>((to - from) * element));
      }
      done += count;
    } while (done < tensor.numel());
  }

  /// Every rank reduces all of it, in the same order, so one barrier is enough.
  void reduce_small(at::Tensor& tensor, Reduction reduce) {
    auto* data = bytes_of(tensor);
    const int half = small_half_ ^= 1;
    if (tensor.nbytes() > 0) std::memcpy(group_->small_slot(rank_, half), data, tensor.nbytes());
    meet();
    std::vector<const std::byte*> in(static_cast<size_t>(size_));
    for (int r = 0; r < size_; ++r) in[static_cast<size_t>(r)] = group_->small_slot(r, half);
    reduce(in.data(), size_, data, tensor.numel());
  }

  std::unique_ptr<SegmentGroup> group_;
  std::unique_ptr<ShmChannel> channel_;  ///< from the first transfer on
  uint64_t sequence_ = 0;
  bool checked_ = false;
  int half_ = 0, small_half_ = 0;  ///< the buffers of the last phase
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> shm_backend(std::unique_ptr<SegmentGroup> group) {
  return c10::make_intrusive<ShmBackend>(std::move(group));
}

}  // namespace runner
