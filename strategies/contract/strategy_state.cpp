// The state of a strategy in pieces: what checkpoints contain, what reducers read, and the parameters that validation uses.
#include <set>
#include <utility>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

std::vector<Strategy::Piece> Strategy::pieces_of(const LocalParameter& local) const {
  const auto& part = model_.spec.parameters()[local.slot]->part;
  if (!part) return {{.begin = 0, .count = local.numel, .slice = {}, .offset = local.offset}};
  std::vector<Piece> pieces;
  int64_t before = 0;  // elements of earlier boxes
  for (const auto& box : part->boxes) {
    const int64_t count = slice_numel(box, part->whole_shape);
    const int64_t first = std::max(local.offset, before), last = std::min(local.offset + local.numel, before + count);
    if (first < last)
      pieces.push_back({.begin = first - local.offset, .count = last - first, .slice = box, .offset = first - before});
    before += count;
  }
  return pieces;
}

/// The first one of the replicas on the tensor axis writes: the others may have other shards of the same parameter.
std::pair<int64_t, int64_t> Strategy::write_range(size_t local, int64_t n) const {
  const auto [number, of] = writer(local);
  if (of == 0 || !is_first_replica(locals_[local].slot)) return {};
  return {n * number / of, n * (number + 1) / of};
}

void Strategy::add_pieces(std::vector<StateTensor>& list, const std::string& kind, size_t i,
                          const Values& values) const {
  const auto& local = locals_[i];
  const auto& spec = *model_.spec.parameters()[local.slot];
  const auto [write_begin, write_end] = write_range(i, local.numel);
  for (const auto& [begin, count, slice, offset] : pieces_of(local)) {
    auto& piece = list.emplace_back(StateTensor{.name = kind + "/" + spec.name,
                                                .global_shape = spec.whole_shape(),
                                                .offset = offset,
                                                .write_begin = std::clamp<int64_t>(write_begin - begin, 0, count),
                                                .write_end = std::clamp<int64_t>(write_end - begin, 0, count),
                                                .slice = normalized(slice, spec.whole_shape())});
    if (values.tensor.defined()) piece.local = values.tensor.narrow(0, begin, count);
    if (const auto& span = values.swapped)
      piece.swapped = SwappedSpan{span->file, span->array, span->begin + begin, count};
  }
}

std::vector<StateTensor> Strategy::parameters() {
  settle();
  restore_masters();
  std::vector<StateTensor> list;
  for (size_t i = 0; i < locals_.size(); ++i)
    add_pieces(list, "param", i, {.tensor = locals_[i].value, .swapped = locals_[i].swapped});
  return list;
}

StateTensor Strategy::optimizer_piece(size_t local, const OptimizerState& state) const {
  const auto& [slot, offset, numel, value, swapped] = locals_[local];
  const auto& spec = *model_.spec.parameters()[slot];
  RUNNER_CHECK(!spec.part, "a state of `{}` that is not one value for each element", spec.name);
  const int64_t n = state.values(numel, spec.shape);
  // All ranks that have a part of the parameter have a whole state. The one with the first element writes it.
  const bool writes = !state.whole() || offset == 0;
  const auto [begin, end] = writes ? write_range(local, n) : std::pair<int64_t, int64_t>();
  return {.name = "optimizer/" + state.name + "/" + spec.name,
          .global_shape = state.shape(spec.shape),
          .offset = state.whole()                                   ? 0
                    : state.extent == OptimizerState::Extent::block ? offset / state_block
                                                                    : offset,
          .write_begin = begin,
          .write_end = end};
}

std::vector<StateTensor> Strategy::trained_state() {
  settle();
  restore_masters();
  auto specs = model_.spec.parameters();
  std::vector<StateTensor> list;
  for (size_t i = 0; i < locals_.size(); ++i) {
    const auto& local = locals_[i];
    const auto& spec = *specs[local.slot];
    const size_t first = list.size();
    add_pieces(list, "param", i, {.tensor = local.value, .swapped = local.swapped});
    for (size_t k = first; k < list.size(); ++k) list[k].optional = spec.of_base;
    if (i >= trained_) continue;
    const auto tensors = optimizer_.state(i);
    const auto& states = optimizer_.states_of(i);
    for (size_t k = 0; k < states.size(); ++k) {
      Values values;
      if (const auto& swap = optimizer_.swap())
        values.swapped = SwappedSpan{swap->file, swap->states[k], optimizer_.swapped_at(i), local.numel};
      else
        values.tensor = tensors[k].view(-1);
      if (states[k].extent == OptimizerState::Extent::element) {
        add_pieces(list, "optimizer/" + states[k].name, i, values);
      } else {
        list.push_back(optimizer_piece(i, states[k]));
        list.back().local = values.tensor;
        list.back().swapped = values.swapped;
      }
    }
  }
  return list;
}

std::vector<StateTensor> Strategy::state() {
  auto list = trained_state(), own = own_state(), buffers = buffer_state();
  list.insert(list.end(), buffers.begin(), buffers.end());
  list.insert(list.end(), own.begin(), own.end());
  return list;
}

std::vector<StateView> Strategy::views_to_save() {
  auto mine = state();
  // Parameters `of_base` are not of this training, so checkpoints do not contain them.
  std::set<std::string> of_base;
  for (const auto* spec : model_.spec.parameters())
    if (spec->of_base) of_base.insert("param/" + spec->name);
  std::erase_if(mine, [&](const StateTensor& tensor) { return of_base.contains(tensor.name); });
  if (!saves_whole()) return views_of(std::move(mine));
  torch::NoGradGuard no_grad;
  std::vector<StateView> whole;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, torch::ScalarType type) {
    const int64_t numel = c10::multiply_integers(shape);
    auto full = torch::zeros({numel}, type);
    for (const auto& piece : mine) {
      const int64_t count = piece.write_end - piece.write_begin;
      if (piece.name != name || count == 0) continue;
      const auto values = piece.read(piece.write_begin, count);
      const SlicePart part{piece.slice, piece.offset + piece.write_begin, piece.offset + piece.write_end};
      for_each_common(shape, {.begin = 0, .end = numel}, part, [&](int64_t whole, int64_t at, int64_t elements) {
        full.narrow(0, whole, elements).copy_(values.narrow(0, at - part.begin, elements));
      });
    }
    // Exactly one rank has each element and the others have zeros, so a sum of bytes is exact for any dtype.
    std::vector<at::Tensor> bytes{full.view(torch::kUInt8)};
    if (world_.size > 1) world_.control->reduce(bytes, {.rootRank = 0})->wait();
    if (world_.rank == 0)
      whole.push_back(view_of({.name = name, .global_shape = shape, .local = full, .write_end = numel}));
  };
  const auto master = scalar_type(job_.precision.parameter);
  const auto& optimizer = optimizer_.config();
  for (const auto* spec : (model_.whole ? model_.whole->spec : model_.spec).parameters()) {
    const auto& shape = spec->whole_shape();
    if (!spec->of_base) add("param/" + spec->name, shape, master);
    if (!spec->trainable) continue;
    const auto& own = optimizer.at(group_of(*spec, optimizer).optimizer);
    for (const auto& state : own.spec().states_for(shape, spec->of_layer, own.states() > 0))
      add("optimizer/" + state.name + "/" + spec->name, state.shape(shape),
          state.type == OptimizerState::Type::master    ? master
          : state.type == OptimizerState::Type::float32 ? torch::kFloat32
                                                        : torch::kUInt8);
  }
  if (world_.rank == 0)
    for (auto& buffer : buffer_state()) whole.push_back(view_of(std::move(buffer)));
  return whole;
}

std::vector<StateTensor> Strategy::own_state() {
  auto list = additions_.state();
  if (replicas_differ() && world_.rank > 0)
    for (const auto& piece : trained_state()) list.push_back(replica_piece(world_, piece.name, piece.local));
  return list;
}

nlohmann::json Strategy::scalars() const {
  nlohmann::json all = {{"optimizer_steps", optimizer_.steps()}, {"loss_scaler", scaler_.state()}};
  if (optimizer_.config().spec().averages) {
    const auto& average = optimizer_.average_state();
    all["average"] = {{"weight_sum", average.weight_sum}, {"largest_factor", average.largest_factor}};
  }
  if (adascale_) all["adascale"] = adascale_->state();
  all.update(additions_.scalars());
  return all;
}

void Strategy::load_scalars(const nlohmann::json& scalars) {
  optimizer_.set_steps(scalars.at("optimizer_steps"));
  scaler_.load(scalars.at("loss_scaler"));
  if (const auto average = scalars.find("average"); average != scalars.end())
    optimizer_.set_average_state({average->at("weight_sum"), average->at("largest_factor")});
  if (const auto adascale = scalars.find("adascale"); adascale_ && adascale != scalars.end())
    adascale_->load(*adascale);
  additions_.load_scalars(scalars);
}

Extension::Host Strategy::host_of_additions() {
  return {.steps = [this] { return optimizer_.steps(); },
          .loss_scale = [this] { return scaler_.scale(); },
          .share = [this] { return share_; },
          .parameters = [this] { return parameters(); },
          .rows = [this] { return rows_; },
          .weight = [this] { return weight_; },
          .trained_state = [this] { return trained_state(); },
          .state_written =
              [this](int64_t steps) {
                optimizer_.set_steps(steps);
                state_loaded();
              },
          .local_size = job_.local_size};
}

void Strategy::use_average() {
  if (!optimizer_.config().spec().averages || !set_aside_.empty()) return;
  use_trained();
  settle();
  for (size_t i = 0; i < trained_; ++i) {
    set_aside_.push_back(locals_[i].value.clone());
    locals_[i].value.copy_(optimizer_.average(i));
  }
  copies_are_average_ = true;
  state_loaded();
}

void Strategy::restore_masters() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < set_aside_.size(); ++i) locals_[i].value.copy_(set_aside_[i]);
  set_aside_.clear();
}

void Strategy::use_trained() {
  restore_masters();
  if (std::exchange(copies_are_average_, false)) state_loaded();
}

void Strategy::make_buffers() {
  const size_t first = model_.spec.parameters().size();
  model_.buffers.clear();
  for (size_t i = 0; i < model_.spec.buffers.size(); ++i) {
    model_.buffers.push_back(
        torch::empty(model_.spec.buffers[i].shape, torch::dtype(torch::kFloat32).device(world_.device)));
    fill(first + i, 0, model_.buffers.back().view(-1));
  }
  model_.sum_over_ranks = [this](torch::Tensor& tensor) {
    if (world_.size == 1) return;
    std::vector<at::Tensor> sums{tensor.to(torch::kCPU).contiguous()};
    world_.control->allreduce(sums, {c10d::ReduceOp::SUM})->wait();
    tensor.copy_(sums[0]);
  };
}

void Strategy::move_buffers(bool takes) {
  if (model_.buffers.empty()) return;
  constexpr double momentum = 0.1;
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (size_t i = 0; i < model_.buffers.size(); ++i) {
    const auto [sum, count] = model_.statistics.of(i);
    parts.push_back(sum.defined() ? sum.view(-1) : torch::zeros_like(model_.buffers[i]).view(-1));
    parts.push_back(torch::full({1}, static_cast<double>(count), parts.back().options()));
  }
  model_.statistics.clear();
  auto all = at::cat(parts);
  model_.sum_over_ranks(all);
  if (!takes) return;
  int64_t at = 0;
  for (auto& buffer : model_.buffers) {
    const int64_t elements = buffer.numel();
    const auto count = all[at + elements].item<double>();
    if (count > 0) buffer.mul_(1 - momentum).add_(all.narrow(0, at, elements).view(buffer.sizes()), momentum / count);
    at += elements + 1;
  }
}

std::vector<StateTensor> Strategy::buffer_state() const {
  std::vector<StateTensor> list;
  for (size_t i = 0; i < model_.buffers.size(); ++i) {
    const auto& spec = model_.spec.buffers[i];
    list.push_back({.name = "param/" + spec.name,
                    .global_shape = spec.shape,
                    .local = model_.buffers[i].view(-1),
                    .write_end = world_.rank == 0 ? spec.numel() : 0});
  }
  return list;
}

}  // namespace runner
