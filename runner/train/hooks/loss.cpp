#include "runner/train/hooks/loss.hpp"

#include "runner/lua/error.hpp"
#include "runner/train/scripts/tensor.hpp"

namespace runner {

using lua::ScriptMistake, lua::Value;

namespace {

/// The tensors of one call.
class LossTensors {
 public:
  LossTensors() {
    host_.made = [this](const std::shared_ptr<lua::Object>& handle) { handles_.push_back(handle); };
  }
  ~LossTensors() {
    for (auto& weak : handles_)
      if (auto object = weak.lock()) object->invalidate("it is valid only in the call of `loss` that made it");
  }
  LossTensors(const LossTensors&) = delete;
  Value handle(const torch::Tensor& tensor) { return made_tensor(host_, tensor); }

 private:
  TensorHost host_;
  std::vector<std::weak_ptr<lua::Object>> handles_;
};

/// The losses [tokens, 1] that a script returned.
torch::Tensor losses_in(const Value& returned, int64_t tokens) {
  const auto* tensor = returned.object ? script_tensor(*returned.object) : nullptr;
  const bool targets = tensor && !tensor->part && !tensor->values.is_floating_point();
  const bool fits = tensor && !tensor->part && !targets && tensor->values.sizes() == at::IntArrayRef({tokens, 1});
  if (!fits)
    throw ScriptMistake(fmt::format("`loss` must return the losses of its tokens, a tensor [{}, 1], not {}", tokens,
                                    !tensor   ? lua::kind_of(returned)
                                    : targets ? "the targets"
                                              : tensor->describe()));
  return tensor->values;
}

}  // namespace

torch::Tensor loss_of_hook(lua::HookSet& hooks, const Value& context, const torch::Tensor& logits,
                           const torch::Tensor& targets) {
  LossTensors tensors;
  torch::Tensor losses;
  hooks.loss(context, tensors.handle(logits), tensors.handle(targets.unsqueeze(1)),
             [&](const Value& returned) { losses = losses_in(returned, logits.size(0)); });
  return losses.squeeze(1);
}

}  // namespace runner
