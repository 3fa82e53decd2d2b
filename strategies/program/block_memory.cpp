#include "strategies/program/block_memory.hpp"

#include <algorithm>
#include <bit>

#include "runner/base/error.hpp"

namespace runner {

namespace {

/// Whether the block's output is a field of the batch, without a copy.
bool passes_field(const Job& job, size_t block) {
  const auto& field = job.model->blocks[block].passes_field;
  return field && job.model->batch.at(*field).type == ElementType::float32 && job.precision.compute == DType::float32;
}

/// Bytes of a tensor between two blocks.
int64_t stream_bytes(const Job& job, double elements_per_token) {
  return static_cast<int64_t>(static_cast<double>(job.micro_batch_size * job.model->seq_len) * elements_per_token *
                              static_cast<double>(bytes_of(job.precision.compute)));
}

}  // namespace

int64_t output_bytes(const Job& job, size_t block) {
  return passes_field(job, block) ? 0 : stream_bytes(job, job.model->blocks[block].output_elements_per_token);
}

int64_t input_bytes(const Job& job, size_t block) {
  const auto& stage = job.model->stage;
  return stage ? stream_bytes(job, stage->input_elements[block]) : output_bytes(job, block - 1);
}

std::vector<int64_t> checkpoint_bytes(const Job& job) {
  std::vector<int64_t> bytes;
  for (size_t block = 0; block < job.model->blocks.size(); ++block)
    if (job.begins_recomputation(block)) bytes.push_back(input_bytes(job, block));
  return bytes;
}

int64_t pinned_bytes(int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

BlockMemory::BlockMemory(const Job& job, DType leaf) : job_(job), leaf_(leaf) {
  RUNNER_CHECK(job.model->profiler, "nobody knows what this model was made from");
  profiles_ = job.model->profiler->profiles(job, leaf);
  for (const auto& block : job.model->blocks) {
    first_slot_.push_back(elements_.size());
    for (const auto& parameter : block.parameters) elements_.push_back(parameter.numel());
  }
}

int64_t BlockMemory::saved_activations(size_t block) const {
  const auto& spec = job_.model->blocks[block];
  int64_t others = 0;
  const auto add = [&](const ParameterSpec& parameter) {
    const bool cast = leaf_ != job_.precision.compute && !parameter.quantized && !parameter.converted;
    if (spec.kind == BlockKind::transformer && cast) others += parameter.numel() * bytes_of(job_.precision.compute);
    // The head that predicts tokens computes this gradient in its forward.
    if (spec.kind == BlockKind::head && !job_.model->task && parameter.trainable && parameter.shape.size() == 2)
      others += parameter.numel() * bytes_of(leaf_);
  };
  for (const auto& parameter : spec.parameters) add(parameter);
  if (!spec.shared.empty()) {
    const auto parameters = job_.model->parameters();
    for (const auto& name : spec.shared) add(*parameters[job_.model->slot(name)]);
  }
  return std::max(profile(block).input, profile(block).plain.saved - others);
}

std::vector<const ParameterSpec*> BlockMemory::converted_parameters(size_t block) const {
  const auto& spec = job_.model->blocks[block];
  std::vector<const ParameterSpec*> list;
  for (const auto& parameter : spec.parameters)
    if (parameter.converted) list.push_back(&parameter);
  if (spec.shared.empty()) return list;
  const auto parameters = job_.model->parameters();
  for (const auto& name : spec.shared)
    if (const auto* shared = parameters[job_.model->slot(name)]; shared->converted) list.push_back(shared);
  return list;
}

int64_t BlockMemory::converted(size_t block) const {
  const auto element = static_cast<double>(bytes_of(job_.precision.compute));
  double bytes = 0;
  for (const auto* parameter : converted_parameters(block))
    bytes += parameter->converted->kept.value_or(element) * static_cast<double>(parameter->numel());
  return static_cast<int64_t>(bytes);
}

int64_t BlockMemory::converting(size_t block) const {
  const auto element = static_cast<double>(bytes_of(job_.precision.compute)),
             cast = leaf_ == job_.precision.compute ? 0 : element;
  double most = 0;
  for (const auto* parameter : converted_parameters(block))
    most = std::max(
        most, (cast + parameter->converted->working.value_or(2 * element)) * static_cast<double>(parameter->numel()));
  return static_cast<int64_t>(most);
}

/// A block may save its output, which is the next one's input (ReLU). Then the tensor outlives the next one's backward, unless the block
/// is computed again. So the moments are those of the pass in which the block before is as in this job.
std::vector<BackwardEvent> BlockMemory::events(size_t block, std::vector<BackwardMoment> BlockProfile::Pass::*part,
                                               bool takes) const {
  using Kind = BackwardEvent::Kind;
  const auto& profile = this->profile(block);
  const auto& recorded = block > 0 && job_.recomputes(block - 1) ? profile.recomputed : profile.plain;
  const int64_t own = pass(block).saved - recorded.saved;  // its output, if only one of the two passes counts it here
  std::vector<BackwardEvent> events;
  for (const auto& moment : recorded.*part) {
    events.push_back({.kind = Kind::peak, .bytes = moment.peak + own});
    if (!moment.parameter) {
      events.push_back({.kind = Kind::level, .bytes = moment.level + own});
      continue;
    }
    const size_t slot = first_slot_[block] + *moment.parameter;
    const int64_t without = moment.level - moment.gradient + own;
    events.push_back({.kind = Kind::level, .bytes = without});
    events.push_back({.kind = Kind::computed, .slot = slot});
    events.push_back({.kind = Kind::peak, .bytes = without + (takes ? 0 : moment.gradient)});
    events.push_back({.kind = Kind::stored, .slot = slot});
    events.push_back({.kind = Kind::level, .bytes = without});
  }
  return events;
}

std::vector<BackwardEvent> BlockMemory::backward(size_t block, bool takes) const {
  auto list = events(block, &BlockProfile::Pass::backward, takes);
  if (job_.model->blocks[block].kind == BlockKind::embedding)
    list.insert(list.begin(), {.kind = BackwardEvent::Kind::took_waiting});
  return list;
}

std::vector<BackwardEvent> BlockMemory::backward_weight(size_t block, bool takes) const {
  return events(block, &BlockProfile::Pass::weight, takes);
}

}  // namespace runner
