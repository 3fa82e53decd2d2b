#include "strategies/contract/optimizer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/glob.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/host_update.hpp"
#include "strategies/contract/matrix_update.hpp"
#include "strategies/contract/quantized_adam.hpp"
#include "strategies/contract/tensor_update.hpp"

namespace runner {

const OptimizerConfig::Group* matching_group(const ParameterSpec& parameter, const OptimizerConfig& config) {
  const auto found = std::ranges::find_if(
      config.groups, [&](const auto& group) { return glob_matches(group.pattern, parameter.name); });
  return found == config.groups.end() ? nullptr : &*found;
}

std::map<std::string, double> rates_by_group(const ModelSpec& model, const OptimizerConfig& config) {
  std::map<std::string, double> rates;
  for (const auto& block : model.blocks)
    for (const auto& parameter : block.parameters) {
      const auto* group = matching_group(parameter, config);
      const bool own_rate = group && (group->lr || group->lr_factor != 1);
      if (!parameter.trainable || (!own_rate && config.layer_decay == 1)) continue;
      auto label = own_rate ? group->label.empty() ? group->pattern : group->label : "";
      if (config.layer_decay != 1 && !(group && group->lr)) label += (label.empty() ? "" : " in ") + block.layer_name();
      rates[label] = group_of(parameter, config).lr;
    }
  return rates;
}

GroupSettings group_of(const ParameterSpec& parameter, const OptimizerConfig& config) {
  GroupSettings settings;
  settings.lr = config.lr;
  if (config.layer_decay != 1) settings.lr *= std::pow(config.layer_decay, static_cast<double>(parameter.layers_above));
  settings.weight_decay = parameter.shape.size() > 1 || config.decay_norms_and_biases ? config.weight_decay : 0.0;
  if (const auto* group = matching_group(parameter, config)) {
    settings.lr = group->lr.value_or(settings.lr * group->lr_factor);
    settings.weight_decay = group->weight_decay.value_or(settings.weight_decay);
    settings.optimizer = group->optimizer;
  }
  return settings;
}

Optimizer::Optimizer(OptimizerConfig config) : config_(std::move(config)) {}

size_t Optimizer::add(const torch::Tensor& parameter, const GroupSettings& group, const torch::Tensor& copy,
                      PartOf part) {
  if (part.shape.empty()) part.shape = parameter.sizes().vec();
  const auto& config = config_.at(group.optimizer);
  auto states = config.spec().states_for(part.shape, part.of_layer, config.states() > 0);
  slots_.push_back(
      {.parameter = parameter, .copy = copy, .group = group, .part = std::move(part), .states = std::move(states)});
  groups_[group].push_back(slots_.size() - 1);
  return slots_.size() - 1;
}

size_t Optimizer::add_swapped(int64_t begin, int64_t count, const GroupSettings& group, const torch::Tensor& parameter,
                              const torch::Tensor& copy) {
  RUNNER_CHECK(swap_ && config_.spec().has_host_kernel());
  RUNNER_CHECK(slots_.empty() || slots_.back().begin + slots_.back().count <= begin);
  slots_.push_back({.parameter = parameter,
                    .copy = copy,
                    .group = group,
                    .states = config_.spec().states_for({count}, true),
                    .begin = begin,
                    .count = count});
  return slots_.size() - 1;
}

void Optimizer::allocate(Slot& slot) {
  if (!slot.state.empty()) return;
  for (const auto& state : slot.states) {
    auto options = slot.parameter.options();
    if (state.type == OptimizerState::Type::float32) options = options.dtype(torch::kFloat32);
    if (state.type == OptimizerState::Type::code) options = options.dtype(torch::kUInt8);
    if (state.extent == OptimizerState::Extent::element)
      slot.state.push_back(torch::zeros_like(slot.parameter, options));
    else
      slot.state.push_back(torch::zeros({state.values(slot.parameter.numel(), slot.part.shape)}, options));
    if (state.starts_as_parameter) slot.state.back().copy_(slot.parameter);
  }
}

std::vector<torch::Tensor> Optimizer::state(size_t index) {
  if (swap_) return {};
  allocate(slots_.at(index));
  return slots_[index].state;
}

void Optimizer::step(const std::vector<torch::Tensor>& gradients, double lr_factor, double gradient_divisor) {
  RUNNER_CHECK(gradients.size() == slots_.size(), "{} gradients for {} parameters", gradients.size(), slots_.size());
  Update update = begin_step(lr_factor, gradient_divisor);
  if (swap_)
    step_swapped(update, gradients);
  else
    step_part(update, 0, gradients);
}

Optimizer::Update Optimizer::begin_step(double lr_factor, double gradient_divisor) {
  torch::NoGradGuard no_grad;
  if (!swap_)
    for (auto& slot : slots_)
      if (slot.parameter.numel() > 0) allocate(slot);
  Update update{.lr_factor = lr_factor, .gradient_divisor = gradient_divisor, .step = ++steps_};
  if (config_.spec().averages) {
    // The weight of an update is the square of its rate. What all groups have in common cancels out.
    average_.largest_factor = std::max(average_.largest_factor, lr_factor);
    const double weight = average_.largest_factor * average_.largest_factor;
    average_.weight_sum += weight;
    update.average_share = average_.weight_sum > 0 ? weight / average_.weight_sum : 0;
  }
  return update;
}

void Optimizer::step_part(const Update& update, size_t first, const std::vector<torch::Tensor>& gradients) {
  RUNNER_CHECK(!swap_ && first + gradients.size() <= slots_.size(), "parameters [{}, +{}) of {}", first,
               gradients.size(), slots_.size());
  torch::NoGradGuard no_grad;
  Part part{first, gradients};
  for (const auto& [group, all] : groups_) {
    auto begin = std::lower_bound(all.begin(), all.end(), first),
         end = std::lower_bound(begin, all.end(), first + gradients.size());
    if (begin == end) continue;
    std::map<Path, std::vector<size_t>> by_path;
    for (auto index = begin; index != end; ++index) by_path[path_of(slots_[*index])].push_back(*index);
    for (const auto& [path, members] : by_path) {
      if (path == Path::host) step_on_host(update, group, members, part);
      if (path == Path::blocks) step_blocks(update, group, members, part);
      if (path == Path::fused) step_group(update, group, members, part);
      if (path == Path::operators) step_by_operators(update, group, members, part);
    }
  }
  for (size_t number = 0; number < config_.count(); ++number)
    if (config_.at(number).spec().needs_matrix) step_matrices(update, part, number);
}

bool Optimizer::needs_matrix() const {
  const auto needs = [](const OptimizerConfig& config) { return config.spec().needs_matrix != nullptr; };
  return needs(config_) || std::ranges::any_of(config_.others, needs);
}

Optimizer::Path Optimizer::path_of(const Slot& slot) const {
  const auto& spec = config_.at(slot.group.optimizer).spec();
  if (spec.needs_matrix && spec.needs_matrix(slot.part.shape, slot.part.of_layer)) return Path::matrix;
  const bool host = slot.parameter.is_cpu() && slot.parameter.scalar_type() == torch::kFloat32;
  const bool quantised = std::ranges::any_of(
      slot.states, [](const OptimizerState& state) { return state.type == OptimizerState::Type::code; });
  if (quantised) return host ? Path::blocks : Path::operators;
  if (host && spec.has_host_kernel()) return Path::host;
  if (!fused_kernel_stores(spec.kind, slot.parameter)) return Path::operators;
  return spec.has_fused_kernel && !config_.qadam_warmup ? Path::fused : Path::operators;
}

void Optimizer::share(std::vector<SharedParameter> shared, ShardGroup group) {
  shared_ = std::move(shared);
  shard_group_ = std::move(group);
}

void Optimizer::step_matrices(const Update& update, const Part& part, size_t number) {
  const auto& config = config_.at(number);
  const auto is_its = [&](size_t index) {
    return slots_[index].group.optimizer == number && path_of(slots_[index]) == Path::matrix;
  };
  const auto begin = part.first, end = part.first + part.gradients.size();
  RUNNER_CHECK(shared_.empty() || end - begin == slots_.size(), "a part of an update that needs all ranks");
  const auto made_of = [&](size_t index, bool shared) {
    const Slot& slot = slots_[index];
    MatrixPart one{.shape = slot.part.shape,
                   .group = slot.group,
                   .shared = shared,
                   .offset = slot.part.offset,
                   .parameter = slot.parameter.view(-1),
                   .gradient = part.gradient(index).view(-1),
                   .states = slot.state,
                   .device = slot.parameter.device()};
    return one;
  };
  const auto device = slots_.empty() ? torch::Device(torch::kCPU) : slots_.front().parameter.device();
  std::vector<bool> listed(slots_.size());
  std::vector<MatrixPart> parts;
  for (const auto& shared : shared_) {
    if (shared.optimizer != number || !config.spec().needs_matrix(shared.shape, shared.of_layer)) continue;
    parts.push_back(shared.index ? made_of(*shared.index, true)
                                 : MatrixPart{.shape = shared.shape, .shared = true, .device = device});
    if (shared.index) listed[*shared.index] = true;
  }
  for (size_t index = begin; index < end; ++index)
    if (!listed[index] && is_its(index)) parts.push_back(made_of(index, false));
  if (config.kind == OptimizerKind::adafactor)
    adafactor_update(config, update, parts, shard_group_);
  else
    muon_update(config, update, parts, shard_group_);
  for (size_t index = begin; index < end; ++index)
    if (slots_[index].copy.defined() && is_its(index)) slots_[index].copy.copy_(slots_[index].parameter);
}

torch::Tensor Optimizer::average(size_t index) {
  const auto& parameter = slots_.at(index).parameter;
  return parameter.lerp(state(index).front().to(parameter.scalar_type()), 1 - 1 / config_.beta1);
}

Moments Optimizer::moments_at(int64_t step) const {
  if (!config_.qadam_warmup || step < *config_.qadam_warmup) return Moments::from_gradient;
  return step == *config_.qadam_warmup ? Moments::kept : Moments::first_given;
}

UpdateSettings Optimizer::settings_of(const Update& update, const GroupSettings& group) const {
  const auto& config = config_.at(group.optimizer);
  return {.lr = group.lr * update.lr_factor,
          .beta1 = config.beta1,
          .beta2 = config.beta2,
          .eps = config.eps,
          .weight_decay = group.weight_decay,
          .decoupled = config.spec().decays_apart_from_gradient,
          .gradient_divisor = update.gradient_divisor,
          .step = update.step,
          .rule = config.spec().rule,
          .moments = moments_at(update.step),
          .average_share = update.average_share};
}

namespace {

struct Piece {
  UpdateSettings settings;
  UpdateSpan span;
};

/// Updates all pieces, with equal numbers of elements on each thread.
void update_all(const std::vector<Piece>& pieces) {
  std::vector<int64_t> begins{0};  // first element of each piece in the concatenation of all pieces, and its end
  for (const auto& piece : pieces) begins.push_back(begins.back() + piece.span.count);
  constexpr int64_t grain = 32768;
  at::parallel_for(0, begins.back(), grain, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin()) - 1;
    for (; i < pieces.size() && begins[i] < end; ++i) {
      int64_t from = std::max(begin, begins[i]), to = std::min(end, begins[i + 1]);
      host_update(pieces[i].settings, pieces[i].span.cut(from - begins[i], to - from));
    }
  });
}

/// A span of `count` elements. Sets the gradient, and the parameter and the copy if they are defined.
UpdateSpan span_of(const torch::Tensor& parameter, const torch::Tensor& copy, const torch::Tensor& gradient,
                   int64_t count) {
  RUNNER_CHECK(gradient.is_cpu() && gradient.is_contiguous() && gradient.scalar_type() != torch::kFloat64);
  UpdateSpan span;
  if (parameter.defined()) span.parameter = parameter.data_ptr<float>();
  span.gradient = gradient.data_ptr();
  span.gradient_dtype = dtype_of(gradient);
  if (copy.defined()) {
    span.copy = copy.data_ptr();
    span.copy_dtype = dtype_of(copy);
  }
  span.count = count;
  return span;
}

}  // namespace

void Optimizer::step_on_host(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  std::vector<Piece> pieces;
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    if (slot.parameter.numel() == 0) continue;
    auto span = span_of(slot.parameter, slot.copy, part.gradient(index), slot.parameter.numel());
    span.first = slot.state[0].data_ptr<float>();
    if (slot.state.size() > 1) span.second = slot.state[1].data_ptr<float>();
    pieces.push_back({settings_of(update, group), span});
  }
  update_all(pieces);
}

void Optimizer::step_blocks(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    const auto values = span_of(slot.parameter, {}, part.gradient(index), slot.parameter.numel());
    const QuantizedSpan span{.parameter = values.parameter,
                             .gradient = values.gradient,
                             .gradient_dtype = values.gradient_dtype,
                             .exp_avg = slot.state[0].data_ptr<uint8_t>(),
                             .exp_avg_sq = slot.state[1].data_ptr<uint8_t>(),
                             .exp_avg_scale = slot.state[2].data_ptr<float>(),
                             .exp_avg_sq_scale = slot.state[3].data_ptr<float>(),
                             .count = values.count};
    const auto settings = settings_of(update, group);
    at::parallel_for(0, (span.count + state_block - 1) / state_block, 64, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * state_block;
      quantized_adam(settings, span.cut(first, std::min(span.count, end * state_block) - first));
    });
    if (slot.copy.defined()) slot.copy.copy_(slot.parameter);
  }
}

void Optimizer::step_swapped(const Update& update, const std::vector<torch::Tensor>& gradients) {
  const OptimizerSwap& swap = *swap_;
  std::vector<size_t> in = swap.states;
  if (swap.parameter) in.push_back(*swap.parameter);
  auto out = in;
  if (swap.copy) out.push_back(*swap.copy);
  swap.file->stream(swap.buffers, in, out, [&](int64_t begin, int64_t count, std::span<std::byte* const> tile) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      int64_t from = std::max(begin, slot.begin), to = std::min(begin + count, slot.begin + slot.count);
      if (from >= to) continue;
      auto within = span_of(slot.parameter, slot.copy, gradients[i], slot.count).cut(from - slot.begin, to - from);
      auto floats = [&](size_t array) { return reinterpret_cast<float*>(tile[array]) + (from - begin); };
      within.first = floats(swap.states[0]);
      if (swap.states.size() > 1) within.second = floats(swap.states[1]);
      if (!slot.parameter.defined()) within.parameter = floats(*swap.parameter);
      if (!slot.copy.defined() && swap.copy) {
        within.copy = tile[*swap.copy] + (from - begin) * bytes_of(swap.copy_dtype);
        within.copy_dtype = swap.copy_dtype;
      }
      pieces.push_back({settings_of(update, slot.group), within});
    }
    update_all(pieces);
  });
}

void Optimizer::step_group(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  Batch batch;
  auto run = [&] {
    if (batch.elements > 0) step_batch(update, group, batch);
    batch = {};
  };
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    int64_t numel = slot.parameter.numel(), piece = numel;
    if (numel == 0) continue;
    bool copied = part.gradient(index).scalar_type() != slot.parameter.scalar_type();
    if (copied && copied_elements_ > 0) piece = copied_elements_;
    for (int64_t begin = 0; begin < numel; begin += piece) {
      int64_t count = std::min(piece, numel - begin);
      if (copied && copied_elements_ > 0 && batch.elements + count > copied_elements_) run();
      auto cut = [&](const torch::Tensor& tensor) { return count == numel ? tensor : tensor.narrow(0, begin, count); };
      batch.parameters.push_back(cut(slot.parameter));
      batch.gradients.push_back(cut(part.gradient(index)).to(slot.parameter.scalar_type()));
      if (slot.state.size() > 0) batch.first.push_back(cut(slot.state[0]));
      if (slot.state.size() > 1) batch.second.push_back(cut(slot.state[1]));
      batch.elements += count;
    }
  }
  run();
  for (size_t index : members)
    if (slots_[index].copy.defined()) slots_[index].copy.copy_(slots_[index].parameter);
}

void Optimizer::step_by_operators(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    const int64_t numel = slot.parameter.numel(), piece = tensor_update_elements(slot.parameter.is_cpu());
    const auto parameter = slot.parameter.view(-1), gradient = part.gradient(index).view(-1);
    for (int64_t begin = 0; begin < numel; begin += piece) {
      const int64_t count = std::min(piece, numel - begin);
      TensorUpdate one{
          settings_of(update, group), parameter.narrow(0, begin, count), gradient.narrow(0, begin, count), {}};
      for (size_t k = 0; k < slot.state.size(); ++k) {
        const bool scales = slot.states[k].extent == OptimizerState::Extent::block;
        one.states.push_back(slot.state[k].view(-1).narrow(0, scales ? begin / state_block : begin,
                                                           slot.states[k].values(count, slot.part.shape)));
      }
      if (const auto& config = config_.at(group.optimizer); config.kind == OptimizerKind::sgd)
        widened_sgd(config, one);
      else
        tensor_update(one);
    }
    if (slot.copy.defined()) slot.copy.copy_(slot.parameter);
  }
}

void Optimizer::step_batch(const Update& update, const GroupSettings& group, const Batch& batch) {
  fused_update(config_.at(group.optimizer), settings_of(update, group),
               {batch.parameters, batch.gradients, batch.first, batch.second});
}

}  // namespace runner
