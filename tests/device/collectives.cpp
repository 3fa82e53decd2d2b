#include "tests/device/collectives.hpp"

#include <cstring>
#include <numeric>

#include "strategies/collective/reduction.hpp"
#include "tests/device/waits.hpp"

namespace runner::simulated {

namespace {

size_t bytes_of(const View& view) { return static_cast<size_t>(view.numel()) * c10::elementSize(view.dtype); }

char* real(const View& view) { return machine().real(view.address); }

using Bytes = std::vector<std::byte>;

Bytes read(const View& view) {
  auto* begin = reinterpret_cast<std::byte*>(real(view));
  return {begin, begin + bytes_of(view)};
}

void write(const View& view, size_t offset, const std::byte* from, size_t count) {
  if (count > 0) std::memcpy(real(view) + offset, from, count);
}

}  // namespace

const char* Collective::name() const {
  switch (kind) {
    case Kind::all_gather:
      return "all_gather";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce:
      return "reduce";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::broadcast:
      break;
  }
  return "broadcast";
}

double Collective::seconds(const View& in, const View& out, const Speeds& speeds) const {
  const auto bytes = static_cast<double>(std::max(bytes_of(in), bytes_of(out)));
  return (kind == Kind::all_reduce ? 2 : 1) * bytes / speeds.wire_bytes;
}

void Collective::run_all_to_all() const {
  std::vector<Bytes> inputs;
  for (const auto& view : in) inputs.push_back(read(view));
  const auto width = static_cast<int64_t>(c10::elementSize(in[0].dtype));
  for (size_t receiver = 0; receiver < out.size(); ++receiver) {
    int64_t at = 0;
    for (size_t sender = 0; sender < in.size(); ++sender) {
      const auto& to = splits[sender].to;
      const int64_t count = to[receiver];
      TORCH_CHECK(splits[receiver].from[sender] == count, name(), ": a rank sends ", count, " elements where another ",
                  "expects ", splits[receiver].from[sender]);
      const int64_t begin = std::accumulate(to.begin(), to.begin() + static_cast<int64_t>(receiver), int64_t{0});
      write(out[receiver], static_cast<size_t>(at * width), inputs[sender].data() + begin * width,
            static_cast<size_t>(count * width));
      at += count;
    }
  }
}

void Collective::run() const {
  if (kind == Kind::all_to_all) return run_all_to_all();
  size_t ranks = in.size();
  std::vector<Bytes> inputs;  // copies: an output may overlap an input
  for (const auto& view : in) {
    TORCH_CHECK(view.numel() == in[0].numel() && view.dtype == in[0].dtype, name(),
                ": ranks give tensors of different sizes");
    inputs.push_back(read(view));
  }
  size_t bytes = inputs[0].size();
  if (kind == Kind::broadcast) {
    for (const auto& view : out) write(view, 0, inputs[static_cast<size_t>(root)].data(), bytes);
    return;
  }
  if (kind == Kind::all_gather) {
    for (const auto& view : out)
      for (size_t rank = 0; rank < ranks; ++rank) write(view, rank * bytes, inputs[rank].data(), bytes);
    return;
  }
  std::vector<const std::byte*> rows;
  for (const auto& input : inputs) rows.push_back(input.data());
  Bytes sum(bytes);
  reduction_of(in[0].dtype, reduction)(rows.data(), static_cast<int>(ranks), sum.data(), in[0].numel());
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (kind == Kind::reduce && rank != static_cast<size_t>(root)) continue;
    size_t part = bytes_of(out[rank]);
    write(out[rank], 0, sum.data() + (kind == Kind::reduce_scatter ? rank * part : 0), part);
  }
}

// ---- where ranks meet

Task Communicator::join(int rank, Stream& stream, const Collective& mine, const View& in, const View& out) {
  require_alive();
  auto seat = static_cast<size_t>(rank);
  uint64_t index = calls_of_rank_[seat]++;
  Call& call = calls_[index];
  if (!call.collective) {
    call.collective = std::make_shared<Collective>(mine);
    call.collective->in.resize(static_cast<size_t>(size_));
    call.collective->out.resize(static_cast<size_t>(size_));
    call.collective->splits.resize(static_cast<size_t>(size_));
    call.meeting = std::make_shared<Meeting>(Meeting{.name = mine.name(),
                                                     .seats = std::vector<Meeting::Seat>(static_cast<size_t>(size_)),
                                                     .work = [collective = call.collective] { collective->run(); }});
  }
  TORCH_CHECK(call.collective->kind == mine.kind, "rank ", rank, " calls ", mine.name(), " where others call ",
              call.collective->name());
  call.collective->in[seat] = in;
  call.collective->out[seat] = out;
  if (!mine.splits.empty()) call.collective->splits[seat] = mine.splits[0];
  call.meeting->seats[seat].stream = &stream;
  Task task{.meeting = call.meeting, .seat = seat};
  if (++call.joined == size_) calls_.erase(index);
  return task;
}

void Communicator::abort() {
  aborted_ = true;
  for (auto& [index, call] : calls_) call.meeting->over = call.meeting->aborted = true;
}

void Communicator::require_alive() const { TORCH_CHECK(!aborted_, "another rank has failed"); }

namespace {

/// Tensors that a collective uses. NCCL's works keep them until wait(), and if nobody waits until the collective has
/// ended.
struct Shelf {
  std::vector<at::Tensor> tensors;
  MomentPtr end;
};

class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Shelf> shelf, c10::Stream stream)
      : communicator_(std::move(communicator)), shelf_(std::move(shelf)), device_(stream.device_index()) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream.device()});
    // What waits for the future waits for the stream that is current now.
    c10::impl::VirtualGuardImpl guard(device_type);
    auto before = guard.exchangeStream(stream);
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>{shelf_->tensors.back()}));
    guard.exchangeStream(before);
  }

  bool isCompleted() override {
    Lock lock = machine().lock();
    if (shelf_->end->passed) machine().host_saw(shelf_->end);
    return shelf_->end->passed;
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    if (wait_is_left_out()) return;
    check_device(device_, "wait for a collective");
    {
      Lock lock = machine().lock();
      communicator_->require_alive();
      machine().schedule.wait(current_stream(device_), shelf_->end);
      machine().run_some(device_);
    }
    shelf_->tensors.clear();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Shelf> shelf_;
  int device_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class DeviceBackend final : public c10d::Backend {
 public:
  DeviceBackend(std::shared_ptr<Communicator> communicator, int rank, int device)
      : Backend(rank, communicator->size()), communicator_(std::move(communicator)), device_(device) {
    Lock lock = machine().lock();
    stream_ = &machine().schedule.take_stream(device);
  }
  ~DeviceBackend() override {
    Lock lock = machine().lock();
    machine().schedule.give_back(*stream_);
  }

  const std::string getBackendName() const override { return "simulated"; }

  using Kind = Collective::Kind;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return start({.kind = Kind::all_reduce, .reduction = options.reduceOp.op_}, only(tensors), only(tensors));
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    return start({.kind = Kind::reduce, .reduction = options.reduceOp.op_, .root = static_cast<int>(options.rootRank)},
                 only(tensors), only(tensors));
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return start({.kind = Kind::broadcast, .root = static_cast<int>(options.rootRank)}, only(tensors), only(tensors));
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    return start({.kind = Kind::all_gather}, input, output);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    return start({.kind = Kind::reduce_scatter, .reduction = options.reduceOp.op_}, input, output);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                               const c10d::AllToAllOptions&) override {
    const auto of = [&](const std::vector<int64_t>& splits, const at::Tensor& tensor) {
      return splits.empty() ? std::vector<int64_t>(static_cast<size_t>(size_), tensor.numel() / size_) : splits;
    };
    return start({.kind = Kind::all_to_all, .splits = {{of(input_splits, input), of(output_splits, output)}}}, input,
                 output);
  }
  /// Of two ranks, the first one sends. Its stream waits for the other rank, as it may with NCCL.
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int, int) override {
    return start({.kind = Kind::broadcast, .root = 0}, only(tensors), only(tensors));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int, int) override {
    return start({.kind = Kind::broadcast, .root = 0}, only(tensors), only(tensors));
  }

 private:
  static const at::Tensor& only(const std::vector<at::Tensor>& tensors) {
    TORCH_CHECK(tensors.size() == 1, "a collective on the simulated device takes one tensor");
    return tensors[0];
  }

  c10::intrusive_ptr<c10d::Work> start(Collective collective, const at::Tensor& input, const at::Tensor& output) {
    const char* name = collective.name();
    c10::Device device(device_type, static_cast<c10::DeviceIndex>(device_));
    TORCH_CHECK(
        input.device() == device && output.device() == device && input.is_contiguous() && output.is_contiguous(), name,
        ": tensors are not contiguous on ", device);
    check_device(device_, name);
    View in = View::of(input), out = View::of(output);
    auto shelf = std::make_shared<Shelf>(Shelf{{input, output}, nullptr});
    auto done = take_what_has_ended();
    Lock lock = machine().lock();
    in.require_memory(name);
    out.require_memory(name);
    Schedule& schedule = machine().schedule;
    schedule.wait(*stream_, schedule.record(current_stream(device_)));
    auto task = communicator_->join(rank_, *stream_, collective, in, out);
    task.seconds = collective.seconds(in, out, schedule.speeds());
    schedule.enter(*stream_, std::move(task));
    in.note(*stream_, collective.kind == Kind::broadcast && collective.root != rank_, name);
    const bool keeps = collective.kind == Kind::broadcast ? collective.root == rank_
                                                          : collective.kind == Kind::reduce && collective.root != rank_;
    out.note(*stream_, !keeps, name);
    shelf->end = schedule.record(*stream_);
    machine().run_some(device_);
    schedule.wake();
    c10::Stream stream(c10::Stream::UNSAFE, device, stream_->id);
    lock.unlock();
    shelves_.push_back(shelf);
    return c10::make_intrusive<DeviceWork>(communicator_, std::move(shelf), stream);
  }

  /// The shelves that nobody needs any more. Their tensors are freed by the caller, when it has no lock.
  std::vector<std::shared_ptr<Shelf>> take_what_has_ended() {
    std::vector<std::shared_ptr<Shelf>> done, others;
    Lock lock = machine().lock();
    for (auto& shelf : shelves_) {
      bool waited = shelf->tensors.empty();
      if (!waited && shelf->end->passed) machine().host_saw(shelf->end);
      (waited || shelf->end->passed ? done : others).push_back(shelf);
    }
    shelves_ = std::move(others);
    return done;
  }

  std::shared_ptr<Communicator> communicator_;
  int device_;
  Stream* stream_ = nullptr;
  std::vector<std::shared_ptr<Shelf>> shelves_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(std::shared_ptr<Communicator> communicator, int rank, int device) {
  return c10::make_intrusive<DeviceBackend>(std::move(communicator), rank, device);
}

}  // namespace runner::simulated
