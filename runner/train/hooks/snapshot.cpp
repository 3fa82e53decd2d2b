#include "runner/train/hooks/snapshot.hpp"

#include "runner/base/error.hpp"

namespace runner {

namespace {

class StateSnapshot : public lua::Snapshot, public std::enable_shared_from_this<StateSnapshot> {
 public:
  explicit StateSnapshot(const SnapshotHost& host) : host_(host) { take(); }

  int64_t step() override { return taken_; }

  void take() override {
    host_.require_allowed("snapshot");
    torch::NoGradGuard no_grad;
    auto pieces = host_.strategy.state();
    values_.resize(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto& kept = values_[i];
      if (kept.defined() && !pieces[i].swapped)
        kept.copy_(pieces[i].local);
      else
        kept = pieces[i].read(0, pieces[i].numel());
    }
    scalars_ = host_.strategy.scalars();
    taken_ = host_.step();
  }

  void restore() override {
    host_.require_allowed("restore");
    host_.restore(taken_, [self = shared_from_this()] { self->apply(); });
  }

 private:
  void apply() {
    torch::NoGradGuard no_grad;
    auto pieces = host_.strategy.state();
    RUNNER_CHECK(pieces.size() == values_.size(), "the training state and its snapshot have different tensors");
    for (size_t i = 0; i < pieces.size(); ++i)
      if (values_[i].numel() > 0) pieces[i].write(0, values_[i]);
    host_.strategy.load_scalars(scalars_);
  }

  const SnapshotHost& host_;
  std::vector<torch::Tensor> values_;  ///< by piece of the state
  nlohmann::json scalars_;
  int64_t taken_ = 0;
};

}  // namespace

std::shared_ptr<lua::Snapshot> take_snapshot(const SnapshotHost& host) { return std::make_shared<StateSnapshot>(host); }

}  // namespace runner
