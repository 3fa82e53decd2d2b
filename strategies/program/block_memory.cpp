#include "strategies/program/block_memory.hpp"

#include <algorithm>
#include <bit>

#include "strategies/contract/row_norms.hpp"

namespace runner {

namespace {

int64_t whole(double bytes) { return static_cast<int64_t>(bytes); }

/// Whether the block's output is a field of the batch, without a copy.
bool passes_field(const Job& job, size_t block) {
  const auto& field = job.model->blocks[block].passes_field;
  return field && job.model->batch.at(*field).type == ElementType::float32 && job.precision.compute == DType::float32;
}

/// Of a tensor between two blocks.
int64_t stream_bytes(const Job& job, double elements_per_token) {
  return whole(static_cast<double>(job.micro_batch_size * job.model->seq_len) * elements_per_token *
               static_cast<double>(bytes_of(job.precision.compute)));
}

int64_t output_bytes(const Job& job, size_t block) {
  return stream_bytes(job, job.model->blocks[block].output_elements_per_token);
}

int64_t input_bytes(const Job& job, size_t block) {
  const auto& stage = job.model->stage;
  return stage ? stream_bytes(job, stage->input_elements[block]) : output_bytes(job, block - 1);
}

}  // namespace

std::vector<int64_t> checkpoint_bytes(const Job& job) {
  std::vector<int64_t> bytes;
  for (size_t block = 0; block < job.model->blocks.size(); ++block)
    if (job.begins_recomputation(block)) bytes.push_back(input_bytes(job, block));
  return bytes;
}

int64_t pinned_bytes(int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

BlockMemory::BlockMemory(const Job& job, DType leaf)
    : job_(job),
      leaf_(leaf),
      tokens_(job.micro_batch_size * job.model->seq_len),
      compute_(bytes_of(job.precision.compute)),
      wide_(std::max<int64_t>(4, compute_)) {
  for (const auto& block : job.model->blocks) {
    first_slot_.push_back(elements_.size());
    for (const auto& parameter : block.parameters) elements_.push_back(parameter.numel());
  }
}

int64_t BlockMemory::input(size_t block) const {
  return job_.model->stage ? input_bytes(job_, block) : output(block - 1);
}

int64_t BlockMemory::output(size_t block) const { return passes_field(job_, block) ? 0 : output_bytes(job_, block); }

double BlockMemory::elements_of_batch(size_t block) const {
  return block > 0 && passes_field(job_, block - 1) ? job_.model->blocks[block - 1].output_elements_per_token : 0;
}

MemoryMoment BlockMemory::own_moment(size_t block, MemoryMoment moment) const {
  moment.compute_elements_per_token = std::max(0.0, moment.compute_elements_per_token - elements_of_batch(block));
  return moment;
}

int64_t BlockMemory::cast_bytes(size_t block, int64_t elements) const {
  const auto& spec = job_.model->blocks[block];
  if (spec.kind != BlockKind::transformer) return 0;
  int64_t bytes = 0;
  for (size_t i = spec.parameters.size(); i-- > 0 && elements > 0; elements -= elements_[first_slot_[block] + i])
    bytes += casts(spec.parameters[i]) ? elements_[first_slot_[block] + i] * compute_ : 0;
  return bytes;
}

int64_t BlockMemory::saved(size_t block) const {
  const auto& saved = job_.model->blocks[block].saved;
  const bool repeats = !job_.accelerator.host_kernels && job_.precision.compute == DType::float32;
  const double elements = saved.compute_elements_per_token + (repeats ? saved.repeated_in_fp32_per_token : 0) +
                          (has_host_attention() ? 0 : saved.joined_per_token) - elements_of_batch(block);
  const double wide = saved.float32_per_token + (has_host_attention() ? saved.host_float32_per_token : 0);
  return whole(static_cast<double>(tokens_) *
               (elements * static_cast<double>(compute_) + wide * static_cast<double>(wide_))) +
         saved.gradient_elements * bytes_of(leaf_) + cast_bytes(block) + saved_output(block);
}

int64_t BlockMemory::saved_output(size_t block) const {
  return job_.recomputes(block) && job_.model->blocks[block].saves_output ? output(block) : 0;
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
  double bytes = 0;
  for (const auto* parameter : converted_parameters(block))
    bytes +=
        parameter->converted->kept.value_or(static_cast<double>(compute_)) * static_cast<double>(parameter->numel());
  return whole(bytes);
}

int64_t BlockMemory::converting(size_t block) const {
  const auto element = static_cast<double>(compute_), cast = leaf_ == job_.precision.compute ? 0 : element;
  double most = 0;
  for (const auto* parameter : converted_parameters(block))
    most = std::max(
        most, (cast + parameter->converted->working.value_or(2 * element)) * static_cast<double>(parameter->numel()));
  return whole(most);
}

int64_t BlockMemory::waiting(size_t block) const {
  const auto& spec = job_.model->blocks[block];
  return spec.shared.empty() ? 0 : spec.saved.gradient_elements * bytes_of(leaf_);
}

int64_t BlockMemory::moment_bytes(const MemoryMoment& moment, int64_t element_bytes) const {
  int64_t chunk = job_.model->loss_chunk_tokens;
  bool several_chunks = chunk > 0 && chunk < tokens_;
  auto tokens = static_cast<double>(tokens_), chunk_tokens = static_cast<double>(several_chunks ? chunk : tokens_);
  auto element = static_cast<double>(element_bytes), wide = static_cast<double>(wide_);
  const bool tiles = !has_host_attention();
  // Of a hook's loss there are also the gradients of the logits and of their log-softmax, and the rows that count, with their indices and
  // targets.
  const double wide_logits = overwrites_logits() ? 0 : job_.own_loss ? 2 : 1;
  const bool counts_rows = job_.own_loss && moment.float32_per_chunk_token > 0;
  const double rows = counts_rows ? static_cast<double>(job_.model->dim) * element + 3 * sizeof(int64_t) : 0;
  const double elements =
                   moment.compute_elements_per_token + (tiles ? moment.joined_per_token + moment.tiled_per_token : 0),
               float32 = moment.float32_per_token + (tiles ? moment.tiled_float32_per_token : 0);
  return whole(tokens * (elements * element + float32 * wide + moment.mask_bytes_per_token + widened_bytes(moment)) +
               chunk_tokens * (moment.compute_elements_per_chunk_token * element +
                               wide_logits * moment.float32_per_chunk_token * wide + rows)) +
         (several_chunks || job_.own_loss ? moment.summed_over_chunks * wide_ : 0);
}

bool BlockMemory::has_host_attention() const {
  return job_.accelerator.host_kernels && job_.precision.compute == DType::float32;
}

bool BlockMemory::overwrites_logits() const {
  return job_.accelerator.host_kernels && job_.precision.compute == DType::bfloat16 && !job_.own_loss;
}

double BlockMemory::widened_bytes(const MemoryMoment& moment) const {
  return !job_.accelerator.host_kernels || compute_ >= 4 ? 0 : 4 * moment.widened_per_token;
}

int64_t BlockMemory::released_bytes(const MemoryMoment& moment) const {
  const double each = moment.released_per_token * static_cast<double>(compute_) + widened_bytes(moment);
  return whole(static_cast<double>(tokens_) * each);
}

int64_t BlockMemory::convolution_bytes(const MemoryMoment& moment) const {
  if (!moment.convolution || job_.accelerator.host_kernels) return 0;
  const auto& c = *moment.convolution;
  const int64_t images = c.in * c.size_in * c.size_in + c.out * c.size_out * c.size_out;
  return compute_ * (job_.micro_batch_size * images + c.weight_elements());
}

int64_t BlockMemory::convolution_weight_bytes(const MemoryMoment& moment) const {
  const int64_t weight = moment.convolution ? compute_ * moment.convolution->weight_elements() : 0;
  return std::max<int64_t>(0, convolution_bytes(moment) - weight);
}

int64_t BlockMemory::norm_bytes(const MemoryMoment& moment) const {
  if (moment.normed_rows == 0) return 0;
  return row_norm_bytes(job_.accelerator.host_kernels, job_.precision.compute, moment.normed_rows,
                        moment.normed_columns, job_.model->adapter->rank);
}

int64_t BlockMemory::product_bytes(size_t block, const MemoryMoment& moment) const {
  const std::vector<int64_t> shape = {moment.out_features, moment.in_features};
  for (const auto& parameter : job_.model->blocks[block].parameters)
    if (parameter.shape == shape) return casts(parameter) ? parameter.numel() * compute_ : 0;
  return 0;
}

int64_t BlockMemory::declared_without_graph(size_t block, bool trains) const {
  const auto& spec = job_.model->blocks[block];
  const bool repeats = !job_.accelerator.host_kernels && job_.precision.compute == DType::float32;
  const int64_t element = spec.kind == BlockKind::embedding ? bytes_of(leaf_) : compute_;
  int64_t most = 0;
  for (const auto& moment : spec.moments_without_graph)
    if (moment.trains.value_or(trains) == trains)
      most = std::max(most, moment_bytes(moment, element) + norm_bytes(moment) + product_bytes(block, moment));
  return most + (repeats ? tokens_ * whole(spec.saved.repeated_in_fp32_per_token) * compute_ : 0);
}

int64_t BlockMemory::forward_without_graph(size_t block, bool trains) const {
  const auto& spec = job_.model->blocks[block];
  if (spec.passes_field) return output(block);
  const int64_t declared = declared_without_graph(block, trains);
  if (spec.kind == BlockKind::embedding) {
    const int64_t cast = leaf_ == job_.precision.compute ? 0 : output(block) / compute_ * bytes_of(leaf_);
    return std::max(declared, output(block) + cast);
  }
  if (spec.kind == BlockKind::head && !job_.model->task) return std::max(declared, loss_without_graph(block));
  if (!spec.moments_without_graph.empty()) return declared;
  double inputs = 0, masked = 0;
  for (const auto& input : spec.inputs) inputs += input.saved ? 0 : input.elements_per_token;
  const int64_t all =
      saved(block) - cast_bytes(block) + whole(static_cast<double>(tokens_) * inputs * static_cast<double>(compute_));
  int64_t convolutions = 0, cast = 0, norms = 0;
  for (size_t i = 0; i < spec.parameters.size(); ++i)
    if (casts(spec.parameters[i])) cast = std::max(cast, elements_[first_slot_[block] + i] * compute_);
  for (const auto& moment : spec.forward_moments) {
    norms = std::max(norms, norm_bytes(moment));
    convolutions = std::max(convolutions, convolution_bytes(moment));
  }
  for (const auto& moment : spec.backward_moments) masked = std::max(masked, moment.mask_bytes_per_token);
  // Attention with dropout has its probabilities, and the mask in one byte and in the dtype of the probabilities.
  const int64_t dropped =
      trains ? whole(static_cast<double>(tokens_) * masked * static_cast<double>(2 * compute_ + 1)) : 0;
  return all + std::max(dropped, cast + std::max(norms, output(block) + convolutions));
}

int64_t BlockMemory::head_cast(size_t block) const {
  if (job_.model->blocks[block].kind != BlockKind::head || leaf_ == job_.precision.compute) return 0;
  // One that is converted was cast before (casts()).
  for (const auto* parameter : converted_parameters(block))
    if (parameter->shape.size() == 2 && parameter->shape[0] == job_.model->vocab_size) return 0;
  return head_columns() * job_.model->dim * compute_;
}

int64_t BlockMemory::head_columns() const { return job_.model->division.most(job_.model->vocab_size); }

/// The input and its norm. For a chunk, the logits and their log-softmax. Of logits that ranks divide, only a copy of the dtype of the
/// loss.
int64_t BlockMemory::loss_without_graph(size_t block) const {
  const auto& division = job_.model->division;
  const int64_t chunk = job_.model->loss_chunk_tokens, tokens = chunk > 0 ? std::min(chunk, tokens_) : tokens_;
  const int64_t logits = tokens * head_columns();
  const int64_t copied = division.divides() ? wide_ + (compute_ < wide_ ? compute_ : 0) : 2 * wide_;
  const int64_t values = tokens * division.loss_values() * 4;
  const int64_t loss = logits * (overwrites_logits() ? compute_ : copied) + values;
  const auto width = static_cast<double>(job_.model->dim);
  return tokens_ * whole(width + division.of_rows(width)) * compute_ + head_cast(block) + loss;
}

std::vector<int64_t> BlockMemory::forward_peaks(size_t block) const {
  std::vector<int64_t> peaks;
  for (const auto& moment : job_.model->blocks[block].forward_moments)
    add_forward_moment(peaks, block, own_moment(block, moment));
  return peaks;
}

void BlockMemory::add_forward_moment(std::vector<int64_t>& peaks, size_t block, const MemoryMoment& moment) const {
  const int64_t chunk = job_.model->loss_chunk_tokens;
  const bool several_chunks = (chunk > 0 && chunk < tokens_) || job_.own_loss;
  // If the gradient is summed over chunks, each chunk's product is added to it in place when the dtypes are equal. Otherwise the
  // product is a separate tensor, and a CPU also makes a wide copy of it.
  int64_t product = compute_;
  if (several_chunks) product = compute_ == wide_ ? 0 : compute_ + (job_.accelerator.host_kernels ? wide_ : 0);
  // The cast of the vocabulary projection's weight exists during all chunks, and the casts of a layer's weights until its backward.
  const int64_t cast = head_cast(block) + cast_bytes(block);
  const int64_t bytes = cast + moment_bytes(moment) + norm_bytes(moment);
  peaks.push_back(bytes + convolution_bytes(moment));
  peaks.push_back(bytes + moment.arriving * product);
  if (moment.out_features == 0) return;
  MemoryMoment outside = moment;  // of the chunks
  outside.compute_elements_per_chunk_token = 0;
  // At the end the cast is freed, and the gradient is copied to the dtype of the weight.
  if ((several_chunks ? wide_ : compute_) != bytes_of(leaf_))
    peaks.push_back(moment_bytes(outside) + moment.arriving * (bytes_of(leaf_) + (several_chunks ? 0 : compute_)));
}

}  // namespace runner
