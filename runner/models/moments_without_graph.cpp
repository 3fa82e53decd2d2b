#include "runner/models/moments_without_graph.hpp"

namespace runner {

MomentsWithoutGraph::MomentsWithoutGraph(const Recipe::Model& model, int64_t seq_len, const TensorDivision& division)
    : drops_(model.dropout > 0),
      division_(division),
      heads_(static_cast<double>(division.most(model.n_heads))),
      scores_(heads_ * static_cast<double>(seq_len)) {}

void MomentsWithoutGraph::add(double beside) { list.push_back({.compute_elements_per_token = beside}); }

void MomentsWithoutGraph::add_product(double beside, int64_t out, int64_t in) {
  list.push_back(
      {.compute_elements_per_token = beside + static_cast<double>(out), .out_features = out, .in_features = in});
}

void MomentsWithoutGraph::add_leave(double beside, double size) {
  if (division_.divides_rows()) add(beside + size + division_.of_rows(size));
}

void MomentsWithoutGraph::add_rms_norm(double beside, double size, double rows) {
  // 16-bit values: an fp32 copy of them and their fp32 result; then the fp32 result and its copy in 16 bits.
  list.push_back({.compute_elements_per_token = beside, .widened_per_token = 2 * size, .float32_per_token = rows});
  list.push_back({.compute_elements_per_token = beside + size, .widened_per_token = size, .float32_per_token = rows});
}

void MomentsWithoutGraph::add_with_dropout(double elements, double mask_bytes) {
  if (!drops_) return;
  list.push_back({.compute_elements_per_token = elements, .mask_bytes_per_token = mask_bytes, .trains = true});
}

void MomentsWithoutGraph::add_dropout(double beside, double size) { add_with_dropout(beside + size, size); }

void MomentsWithoutGraph::add_dropout_attention(double beside, double size, bool repeats) {
  // Products copy heads that are not adjacent in memory.
  const double all = beside + (repeats ? 2 * size : 0), copy = repeats ? 0 : size;
  add_with_dropout(all + size + copy + scores_);
  add_with_dropout(all + 2 * scores_, scores_);  // probabilities, their mask and its copy
  add_with_dropout(all + scores_ + copy + size);
}

void MomentsWithoutGraph::add_without_dropout(MemoryMoment moment) {
  if (drops_) moment.trains = false;
  list.push_back(moment);
}

void MomentsWithoutGraph::add_fused_attention(double beside, double size, bool joined) {
  MemoryMoment moment{.compute_elements_per_token = beside + size, .float32_per_token = heads_};
  if (joined) moment.joined_per_token = size;
  add_without_dropout(moment);
}

}  // namespace runner
