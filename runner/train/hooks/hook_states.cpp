// States of hooks in checkpoints: plain data in the manifest, and tensors in pieces like those of the strategy.
//
// A hook's tensor has the layout of some parameter, because arithmetic preserves the layout. The checkpoint stores the
// name of that parameter. A reader with another strategy or number of ranks takes the piece that it has of that
// parameter. If replicas differ, each rank has its own values. Ranks above 0 then store theirs as replica pieces.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/lua/error.hpp"
#include "runner/train/hooks/training_hooks.hpp"

namespace runner {

using lua::ScriptMistake, lua::Value;
using nlohmann::json;

namespace {

std::string tensor_name(const std::string& name) { return "hook/" + name; }

}  // namespace

void TrainingHooks::save(TrainerState& state, Checkpointer::More& more) {
  torch::NoGradGuard no_grad;
  call_.moment = Moment::on_save_checkpoint;
  tensors_.parameters_writable = false;
  const bool own_replica = exchange_.rank() > 0 && setup_.strategy.replicas_differ();
  // Sorted by name, because the order of tables differs between ranks.
  std::map<std::string, std::vector<StateTensor>> kept;
  auto keep = [&](const std::string& name, const std::shared_ptr<lua::Object>& object) -> json {
    const ScriptTensor* tensor = object->valid() ? script_tensor(*object) : nullptr;
    if (!object->valid() || (tensor && tensor->kind != ScriptTensor::Kind::own))
      throw ScriptMistake(
          fmt::format("a {} is valid only in the call that got it; keep a clone()", object->kind().name()));
    if (!tensor) throw ScriptMistake(fmt::format("a {} is not plain data", object->kind().name()));
    const auto& part = *tensor->part;
    auto values = tensor->values.contiguous();
    kept[name] = own_replica ? std::vector{replica_piece(setup_.world, tensor_name(name), values)}
                             : pieces_of(part, tensor_name(name), values);
    tensors_of_states_.clear();
    for (const auto& [other, pieces] : kept) tensors_of_states_ += other + "\n";
    return {{"like", part.name}};
  };
  auto saved = hooks_.save(context_.value(), keep);
  call_.moment.reset();
  for (auto& [name, pieces] : kept)
    if (saved.contains(name.substr(0, name.find('/'))))
      for (auto& piece : pieces) more.tensors.push_back(view_of(std::move(piece)));
  state["hooks"] = std::move(saved);
  state["hooks_history"] = {
      {"metrics", metrics_->save()}, {"disabled", hooks_.disabled()}, {"artifacts", context_.artifacts().sizes()}};
  more.files = context_.artifacts().take_written();
}

void TrainingHooks::restore_history(const TrainerState& state) {
  const json saved = state.value("hooks_history", json::object());
  metrics_->load(saved.value("metrics", json::object()), exchange_.rank() == 0);
  hooks_.disable(saved.value("disabled", std::vector<std::string>()));
  context_.artifacts().restore(saved.value("artifacts", json()));
}

void TrainingHooks::load(const Checkpoint& checkpoint, const TrainingProgress& progress) {
  call_.progress = progress;
  torch::NoGradGuard no_grad;
  call_.moment = Moment::on_load_checkpoint;
  tensors_.parameters_writable = true;
  const auto pieces = setup_.strategy.parameters();
  const bool own_replica = exchange_.rank() > 0 && setup_.strategy.replicas_differ();
  auto restore = [&](const std::string& name, const json& kept) {
    auto stored = tensor_name(name);
    auto like = kept.at("like").get<std::string>();
    auto names = context_.parameter_names();
    if (std::find(names.begin(), names.end(), like) == names.end() || !checkpoint.has(stored) ||
        checkpoint.shape(stored) != context_.spec_of(like).shape)
      throw environment_error(
          "the checkpoint's `{}`, part of a hook's state, is missing or does not fit the model's {}", stored, like);
    const auto mine = replica_piece_name(stored);
    return make_own_tensor(tensors_, like, context_.spec_of(like).shape, pieces, [&](const ScriptTensor::Run& run) {
      const auto& [slice, offset, count] = run;
      if (!own_replica || !checkpoint.has(mine))
        return read_elements(checkpoint, stored, {slice, offset, offset + count});
      const int64_t before = (exchange_.rank() - 1) * count;
      return read_elements(checkpoint, mine, {{}, before, before + count});
    });
  };
  hooks_.load(checkpoint.state().value("hooks", json::object()), context_.value(), restore);
  call_.moment.reset();
}

}  // namespace runner
