#include "runner/inference/language_model.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/cuda/module.hpp"
#include "runner/models/module.hpp"
#include "strategies/collective/accelerator.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

using torch::Tensor;

torch::Device prepared_device(const LoadRequest& request) {
  at::set_num_threads(static_cast<int>(std::max<int64_t>(1, request.threads)));
  const auto accelerator = find_accelerator(request.accelerator);
  if (!accelerator.own_memory) return torch::Device(accelerator.type);
  use_cuda(0);
  return torch::Device(accelerator.type + ":0");
}

torch::ScalarType loaded_dtype(const LoadRequest& request, const StoredModel& stored) {
  const bool narrow = request.dtype == "bf16" || (request.dtype == "auto" && stored.dtype == "BF16");
  return narrow ? torch::kBFloat16 : torch::kFloat32;
}

/// The parameter in its mapped file; undefined if it has another dtype or layout there.
Tensor mapped_tensor(const HfSource::Stored& stored, const ParameterSpec& parameter, torch::ScalarType dtype) {
  const bool same = stored.dtype == (dtype == torch::kBFloat16 ? "BF16" : "F32");
  const auto address = reinterpret_cast<uintptr_t>(stored.bytes.data());
  if (!same || stored.bytes.empty() || address % c10::elementSize(dtype) != 0) return {};
  // Nothing writes to parameters.
  return at::from_blob(const_cast<std::byte*>(stored.bytes.data()), parameter.shape,
                       torch::TensorOptions().dtype(dtype));
}

Tensor read_tensor(const StoredModel& stored, size_t slot, const ParameterSpec& parameter, torch::ScalarType dtype) {
  auto tensor = at::empty(parameter.shape, torch::TensorOptions().dtype(dtype));
  const int64_t count = parameter.numel();
  if (dtype == torch::kFloat32) {
    stored.read(slot, 0, {tensor.data_ptr<float>(), static_cast<size_t>(count)});
    return tensor;
  }
  constexpr int64_t piece = 1 << 22;
  auto flat = tensor.view(-1), wide = at::empty({std::min(piece, count)}, torch::kFloat32);
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t size = std::min(piece, count - first);
    stored.read(slot, first, {wide.data_ptr<float>(), static_cast<size_t>(size)});
    flat.narrow(0, first, size).copy_(wide.narrow(0, 0, size));
  }
  return tensor;
}

Tensor tensor_of_tokens(int64_t rows, std::span<const int64_t> tokens) {
  auto tensor = at::empty({rows, std::ssize(tokens) / rows}, torch::kInt64);
  std::ranges::copy(tokens, tensor.data_ptr<int64_t>());
  return tensor;
}

/// Inputs [rows, length]. Throws Error(usage) for a token that the model does not know.
Tensor tensor_of_inputs(int64_t rows, std::span<const int64_t> tokens, int64_t vocab_size) {
  const auto unknown = std::ranges::find_if(tokens, [&](int64_t token) { return token < 0 || token >= vocab_size; });
  if (unknown != tokens.end())
    throw usage_error("token {} is not one of the model's {}: its tokenizer belongs to another model", *unknown,
                      vocab_size);
  return tensor_of_tokens(rows, tokens);
}

}  // namespace

LanguageModel::LanguageModel(const LoadRequest& request)
    : stored_(open_stored_model(request.place())),
      device_(prepared_device(request)),
      dtype_(loaded_dtype(request, stored_)),
      model_(build_model(stored_.recipe.model, stored_.spec)) {
  const torch::InferenceMode inference;
  const auto parameters = model_->spec.parameters();
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    auto tensor = mapped_tensor(stored_.stored(slot), *parameters[slot], dtype_);
    if (!tensor.defined()) tensor = read_tensor(stored_, slot, *parameters[slot], dtype_);
    model_->slots[slot] = tensor.to(device_);
  }
}

KeyValueCache LanguageModel::new_cache(std::vector<int64_t> padding) const {
  if (settings().name == "plugin")
    throw usage_error(
        "the model of a plug-in keeps no keys and values of earlier tokens, so it cannot generate text; `runner "
        "evaluate` "
        "measures it");
  return {KeyValueCache::Shape::of(settings()), torch::TensorOptions().dtype(dtype_).device(device_),
          std::move(padding)};
}

Tensor LanguageModel::run(const MicroBatch& batch, ForwardContext context) const {
  context.batch = &batch;
  context.training = false;
  Tensor x;
  for (const auto& block : model_->blocks) x = block->forward(x, context);
  return x;
}

Tensor LanguageModel::next_logits(std::span<const int64_t> tokens, KeyValueCache& cache) const {
  const torch::InferenceMode inference;
  const auto inputs = tensor_of_inputs(cache.rows(), tokens, vocab_size());
  MicroBatch batch{.rows = cache.rows(), .fields = {inputs.to(device_), Tensor()}, .host_fields = {inputs, Tensor()}};
  cache.begin(inputs.size(1));
  auto logits = run(batch, {.logits_of = inputs.size(1) - 1, .cache = &cache});
  cache.end();
  return logits.to(torch::kCPU);
}

LanguageModel::Scores LanguageModel::score(int64_t rows, std::span<const int64_t> inputs,
                                           std::span<const int64_t> targets) const {
  const torch::InferenceMode inference;
  Scores scores;
  const TokenLoss collect = [&](const Tensor& logits, const Tensor& of_tokens) {
    const auto log_probabilities = at::log_softmax(logits, -1);
    const auto chosen = log_probabilities.gather(1, of_tokens.unsqueeze(1)).squeeze(1);
    const auto values = chosen.to(torch::kCPU, torch::kFloat64), greedy = logits.argmax(-1).eq(of_tokens).cpu();
    for (int64_t i = 0; i < values.numel(); ++i) {
      scores.log_probabilities.push_back(values.data_ptr<double>()[i]);
      scores.greedy.push_back(greedy.data_ptr<bool>()[i]);
    }
    return -chosen;
  };
  MicroBatch batch{.rows = rows};
  batch.host_fields = {tensor_of_inputs(rows, inputs, vocab_size()), tensor_of_tokens(rows, targets)};
  for (const auto& field : batch.host_fields) batch.fields.push_back(field.to(device_));
  run(batch, {.token_loss = &collect});
  return scores;
}

}  // namespace runner
