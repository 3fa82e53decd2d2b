// Works of transfers through another buffer than the caller's tensor.
#pragma once
#include <cstring>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner::testing {

/// A receive into `buffer`. wait() copies what has arrived into `tensor`.
class HeldReceive : public c10d::Work {
 public:
  HeldReceive(c10::intrusive_ptr<c10d::Work> inner, at::Tensor buffer, at::Tensor tensor)
      : inner_(std::move(inner)), buffer_(std::move(buffer)), tensor_(std::move(tensor)) {}
  bool isCompleted() override { return inner_->isCompleted(); }
  bool wait(std::chrono::milliseconds timeout) override {
    inner_->wait(timeout);
    tensor_.copy_(buffer_);
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  at::Tensor buffer_, tensor_;
};

/// A send of `copy`, which was equal to `tensor`. wait() throws if `tensor` has been changed since.
class HeldSend : public c10d::Work {
 public:
  HeldSend(c10::intrusive_ptr<c10d::Work> inner, at::Tensor copy, at::Tensor tensor)
      : inner_(std::move(inner)), copy_(std::move(copy)), tensor_(std::move(tensor)) {}
  bool isCompleted() override { return inner_->isCompleted(); }
  bool wait(std::chrono::milliseconds timeout) override {
    inner_->wait(timeout);
    TORCH_CHECK(copy_.nbytes() == 0 || std::memcmp(copy_.data_ptr(), tensor_.data_ptr(), copy_.nbytes()) == 0,
                "a tensor was changed before its send was waited for");
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
  at::Tensor copy_, tensor_;
};

}  // namespace runner::testing
