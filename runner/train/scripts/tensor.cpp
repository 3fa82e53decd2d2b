#include "runner/train/scripts/tensor.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/lua/error.hpp"

namespace runner {

using lua::Object, lua::ScriptMistake, lua::Value;

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

namespace {

/// Adds a piece that follows the elements of `place` in memory or in the file. Pieces of a parameter on a rank do: they are slices of one
/// local tensor.
void append(StateTensor& place, const StateTensor& piece) {
  if (place.numel() == 0) {
    place = piece;
  } else if (place.swapped) {
    RUNNER_CHECK(piece.swapped && piece.swapped->begin == place.swapped->begin + place.swapped->count);
    place.swapped->count += piece.swapped->count;
  } else {
    const int64_t first = place.local.storage_offset(), count = place.local.numel();
    RUNNER_CHECK(piece.local.storage().is_alias_of(place.local.storage()) &&
                 piece.local.storage_offset() == first + count);
    place.local = place.local.as_strided({count + piece.local.numel()}, {1}, first);
  }
}

}  // namespace

std::shared_ptr<Object> make_tensor_handle(TensorHost& host, ScriptTensor::Kind kind, const std::string& name,
                                           const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                           double divisor) {
  const auto piece_name = (kind == ScriptTensor::Kind::parameter ? "param/" : "gradient/") + name;
  ScriptTensor tensor{
      .host = &host, .kind = kind, .part = ScriptTensor::Part{.name = name, .shape = shape}, .divisor = divisor};
  tensor.place.emplace().local = torch::empty({0}, torch::kFloat32);
  for (const auto& piece : pieces) {
    if (piece.name != piece_name) continue;
    auto& part = *tensor.part;
    const int64_t before = tensor.place->numel();
    append(*tensor.place, piece);
    part.runs.push_back({.slice = piece.slice, .offset = piece.offset, .count = piece.numel()});
    if (piece.write_begin == piece.write_end) continue;
    if (part.begin == part.end) part.begin = before + piece.write_begin;
    part.end = before + piece.write_end;
  }
  return Object::make(tensor_class(), std::move(tensor));
}

std::shared_ptr<Object> make_own_tensor(TensorHost& host, const std::string& parameter,
                                        const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                        const std::function<torch::Tensor(const ScriptTensor::Run&)>& read) {
  auto like = make_tensor_handle(host, ScriptTensor::Kind::parameter, parameter, shape, pieces);
  const auto& tensor = like->as<ScriptTensor>();
  std::vector<torch::Tensor> runs;
  for (const auto& run : tensor.part->runs) runs.push_back(read(run));
  auto values = runs.empty() ? torch::empty({0}, torch::kFloat32) : torch::cat(runs);
  if (!runs.empty() && !tensor.place->swapped) values = values.to(tensor.place->local.device());
  return made_tensor(tensor, values).object;
}

std::vector<StateTensor> pieces_of(const ScriptTensor::Part& part, const std::string& name,
                                   const torch::Tensor& values) {
  std::vector<StateTensor> pieces;
  int64_t before = 0;
  for (const auto& [slice, offset, count] : part.runs) {
    pieces.push_back({.name = name,
                      .global_shape = part.shape,
                      .offset = offset,
                      .local = values.narrow(0, before, count),
                      .write_begin = std::clamp<int64_t>(part.begin - before, 0, count),
                      .write_end = std::clamp<int64_t>(part.end - before, 0, count),
                      .slice = slice});
    before += count;
  }
  return pieces;
}

}  // namespace runner
