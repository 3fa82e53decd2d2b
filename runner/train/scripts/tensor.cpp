#include "runner/train/scripts/tensor.hpp"

#include <fmt/ranges.h>

#include "runner/base/error.hpp"
#include "runner/lua/error.hpp"

namespace runner {

using lua::Object;
using lua::ScriptMistake;
using lua::Value;

torch::Tensor ScriptTensor::read() const {
  if (!place) return values;
  if (place->numel() == 0) return torch::empty({0}, torch::kFloat32);
  auto held = place->swapped ? place->read(0, place->numel()) : place->local;
  return divisor == 1 ? held : held.to(torch::kFloat32) / divisor;
}

void ScriptTensor::write(const std::function<void(torch::Tensor&)>& change) {
  if (values.defined() && values.dim() != 1)
    throw ScriptMistake("the tensors of `loss` cannot change; compute a new one");
  if (kind == Kind::parameter && !host->parameters_writable)
    throw ScriptMistake(fmt::format("{} cannot change inside a step: change {} in {}", part ? part->name : "parameters",
                                    part ? "it" : "them", host->parameters_change_in));
  if (!part) return change(values);
  auto changed = read().clone();  // what was read before stays as it was, such as the values in a checkpoint
  change(changed);
  if (!place) {
    values = changed;
    return;
  }
  if (kind == Kind::parameter && host->before_write && place->numel() > 0) host->before_write(*place);
  (kind == Kind::parameter ? host->parameters_written : host->gradients_written) = true;
  host->written.push_back((kind == Kind::gradient ? "gradient/" : "param/") + part->name);
  if (place->numel() > 0) place->write(0, divisor == 1 ? changed : changed * divisor);
}

std::string ScriptTensor::describe() const {
  if (part) return fmt::format("{} [{}]", part->name, fmt::join(part->shape, ", "));
  return fmt::format("[{}]", fmt::join(values.sizes(), ", "));
}

const ScriptTensor* script_tensor(const Object& object) {
  return &object.kind() == &tensor_class() ? &object.as<ScriptTensor>() : nullptr;
}

Value tensor_handle(TensorHost& host, torch::Tensor values, ScriptTensor::Kind kind) {
  return Value(Object::make(tensor_class(), ScriptTensor{.host = &host, .kind = kind, .values = std::move(values)}));
}

Value made_tensor(const ScriptTensor& like, torch::Tensor values) {
  constexpr int64_t bytes_between_collections = int64_t{64} << 20;
  if (like.part && at::isReducedFloatingType(values.scalar_type())) values = values.to(torch::kFloat32);
  auto& host = *like.host;
  host.bytes_made += static_cast<int64_t>(values.nbytes());
  auto made = Object::make(tensor_class(), ScriptTensor{.host = &host, .values = std::move(values), .part = like.part});
  if (host.made) host.made(made);
  if (host.collects && host.bytes_made >= bytes_between_collections) {
    host.collects->collect_garbage();
    host.bytes_made = 0;
  }
  return Value(made);
}

std::shared_ptr<Object> make_tensor_handle(TensorHost& host, ScriptTensor::Kind kind, const std::string& name,
                                           const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                           double divisor) {
  const auto piece_name = (kind == ScriptTensor::Kind::parameter ? "param/" : "gradient/") + name;
  ScriptTensor tensor{
      .host = &host, .kind = kind, .part = ScriptTensor::Part{.name = name, .shape = shape}, .divisor = divisor};
  tensor.place.emplace().local = torch::empty({0}, torch::kFloat32);
  for (const auto& piece : pieces) {
    if (piece.name != piece_name) continue;
    RUNNER_CHECK(tensor.place->numel() == 0, "a rank has two pieces of {}", name);
    tensor.place = piece;
    tensor.part->offset = piece.offset;
    tensor.part->begin = piece.write_begin;
    tensor.part->end = piece.write_end;
  }
  return Object::make(tensor_class(), std::move(tensor));
}

std::shared_ptr<Object> make_own_tensor(TensorHost& host, const std::string& parameter,
                                        const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                        const std::function<torch::Tensor(int64_t, int64_t)>& read) {
  auto like = make_tensor_handle(host, ScriptTensor::Kind::parameter, parameter, shape, pieces);
  const auto& tensor = like->as<ScriptTensor>();
  const int64_t count = tensor.place->numel();
  auto values = count > 0 ? read(tensor.part->offset, count) : torch::empty({0}, torch::kFloat32);
  if (count > 0 && !tensor.place->swapped) values = values.to(tensor.place->local.device());
  return made_tensor(tensor, values).object;
}

}  // namespace runner
