#include "runner/inference/loaded_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/config/model_families.hpp"
#include "runner/cuda/module.hpp"
#include "runner/data/data.hpp"
#include "runner/models/final_norm.hpp"
#include "runner/models/module.hpp"
#include "strategies/collective/accelerator.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor;

namespace {

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

Tensor tensor_of(int64_t rows, const HostBatch::Field& field) {
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), field.spec.row.begin(), field.spec.row.end());
  auto tensor = at::empty(shape, scalar_type(field.spec.type));
  std::memcpy(tensor.data_ptr(), field.bytes.data(), field.bytes.size());
  return tensor;
}

void refuse_unknown_tokens(const Tensor& inputs, int64_t vocab_size) {
  const std::span tokens(inputs.data_ptr<int64_t>(), static_cast<size_t>(inputs.numel()));
  const auto unknown = std::ranges::find_if(tokens, [&](int64_t token) { return token < 0 || token >= vocab_size; });
  if (unknown != tokens.end())
    throw usage_error("token {} is not one of the model's {}: its tokenizer belongs to another model", *unknown,
                      vocab_size);
}

}  // namespace

LoadedModel::LoadedModel(const LoadRequest& request, StoredModel stored, Head head)
    : stored_(std::move(stored)),
      device_(prepared_device(request)),
      dtype_(loaded_dtype(request, stored_)),
      model_(build_model(stored_.recipe.model, stored_.spec)) {
  const torch::InferenceMode inference;
  const auto all = model_->spec.stored();
  const size_t parameters = model_->spec.parameters().size();
  const auto& of_head = model_->spec.blocks.back().parameters;
  const bool is_encoder = family_kind(settings().name) == "encoder";
  model_->buffers.resize(all.size() - parameters);
  for (size_t slot = 0; slot < all.size(); ++slot) {
    const bool in_head = std::ranges::find(of_head, all[slot]->name, &ParameterSpec::name) != of_head.end();
    const bool norm = !is_encoder && all[slot]->name.starts_with("head.norm.");
    if (in_head && head == Head::left_out && !norm) continue;
    if (!stored_.has(slot) && in_head && is_language_model(settings().name))
      throw usage_error(
          "{} has no head, so its model gives hidden states only; `runner embed` writes them as embeddings",
          request.name);
    if (!stored_.has(slot)) throw usage_error("{} has no {} of the model's size", request.name, all[slot]->name);
    const bool buffer = slot >= parameters;
    const auto dtype = buffer ? torch::kFloat32 : dtype_;
    auto tensor = mapped_tensor(stored_.stored(slot), *all[slot], dtype);
    if (!tensor.defined()) tensor = read_tensor(stored_, slot, *all[slot], dtype);
    (buffer ? model_->buffers[slot - parameters] : model_->slots[slot]) = tensor.to(device_);
  }
}

MicroBatch LoadedModel::micro_batch(const HostBatch& batch) const {
  MicroBatch result{.rows = batch.rows};
  for (const auto& needed : model_->spec.batch) {
    const auto found = std::ranges::find(batch.fields, needed.name, [](const auto& field) { return field.spec.name; });
    result.host_fields.push_back(found == batch.fields.end() ? Tensor() : tensor_of(batch.rows, *found));
    const auto& field = result.host_fields.back();
    if (needed.name == token_field::inputs_name) refuse_unknown_tokens(field, stored_.spec.vocab_size);
    result.fields.push_back(field.defined() ? field.to(device_) : field);
  }
  return result;
}

Tensor LoadedModel::forward(size_t blocks, const MicroBatch& batch, ForwardContext context) const {
  context.batch = &batch;
  context.training = false;
  Tensor x;
  for (size_t i = 0; i < blocks; ++i) x = model_->blocks[i]->forward(x, context);
  return x;
}

Tensor LoadedModel::run(const MicroBatch& batch, ForwardContext context) const {
  return forward(model_->blocks.size(), batch, context);
}

Tensor LoadedModel::hidden_states(const MicroBatch& batch) const {
  const auto hidden = forward(model_->blocks.size() - 1, batch, {});
  const auto* head = dynamic_cast<const FinalNorm*>(model_->blocks.back().get());
  return head ? head->normed(hidden.flatten(0, 1)).view(hidden.sizes()) : hidden;
}

std::string LoadedModel::not_finite() const {
  const torch::InferenceMode inference;
  const auto all = model_->spec.stored();
  std::vector<std::string> names;
  for (size_t slot = 0; slot < all.size(); ++slot) {
    const size_t parameters = model_->slots.size();
    const auto& weight = slot < parameters ? model_->slots[slot] : model_->buffers[slot - parameters];
    if (weight.defined() && !at::isfinite(weight).all().item<bool>()) names.push_back(all[slot]->name);
  }
  return names.empty() ? "the model's outputs are not finite, although its weights are"
                       : "the model's weights are not finite: " + first_ten(names);
}

void LoadedModel::warn_not_finite(const std::string& what, double value) const {
  if (!std::isfinite(value)) log::warning("{} is not a finite number: {}", what, not_finite());
}

KeyValueCache LanguageModel::new_cache(std::vector<int64_t> padding) const {
  if (settings().name == "plugin")
    throw usage_error(
        "the model of a plug-in keeps no keys and values of earlier tokens, so it cannot generate text; `runner "
        "evaluate` measures it");
  if (labels_texts(settings()))
    throw usage_error(
        "{} predicts labels or numbers of texts, so it cannot generate text; `runner predict` writes them",
        settings().name);
  if (family_kind(settings().name) == "encoder")
    throw usage_error(
        "{} predicts hidden tokens, not the next one, so it cannot generate text; `runner evaluate` measures it, and "
        "`runner embed` writes embeddings",
        settings().name);
  return {KeyValueCache::Shape::of(settings()), torch::TensorOptions().dtype(dtype()).device(device()),
          std::move(padding)};
}

Tensor LanguageModel::next_logits(std::span<const int64_t> tokens, KeyValueCache& cache) const {
  const torch::InferenceMode inference;
  const int64_t rows = cache.rows(), columns = std::ssize(tokens) / rows;
  HostBatch host(rows, {token_fields(columns).at(token_field::inputs)});
  std::ranges::copy(tokens, host.values<int64_t>(token_field::inputs).begin());
  auto batch = micro_batch(host);
  cache.begin(columns);
  auto logits = run(batch, {.logits_of = columns - 1, .cache = &cache});
  cache.end();
  return logits.to(torch::kCPU);
}

LanguageModel::Scores LanguageModel::score(const HostBatch& batch) const {
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
  run(micro_batch(batch), {.token_loss = &collect});
  return scores;
}

std::unique_ptr<Tokenizer> open_model_tokenizer(const StoredModel& model, const std::string& cache_dir) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = make_tokenizer(model.recipe.data, cache_dir);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the model needs its tokenizer: {}", error.what()));
  }
  if (!model.tokenizer_digest.empty() && tokenizer->hash() != model.tokenizer_digest)
    throw usage_error(
        "the tokenizer {} has changed since the run trained with it, so its ids mean other tokens: restore the file",
        model.recipe.data.tokenizer);
  return tokenizer;
}

}  // namespace runner
