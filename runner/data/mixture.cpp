#include "runner/data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "runner/data/composite_dataset.hpp"
#include "runner/data/order.hpp"

namespace runner {

namespace {

/// How many of the first `position` items of a node belong to its first part: position * first / count, rounded to the nearest.
int64_t taken_by_first(int64_t position, int64_t first, int64_t count) {
  using Wide = __int128;  // the product of two counts
  return static_cast<int64_t>((Wide{2} * position * first + count) / (Wide{2} * count));
}

class MixtureDataset final : public CompositeDataset {
 public:
  MixtureDataset(std::vector<MixtureSource> sources, std::vector<int64_t> counts)
      : sources_(std::move(sources)), counts_(std::move(counts)), interleaving_(counts_) {
    for (const auto& source : sources_) {
      RUNNER_CHECK(missing_fields(source.data->fields(), sources_[0].data->fields()).empty());
      firsts_.push_back(samples_);
      samples_ += source.data->size();
    }
  }

  int64_t size() const override { return interleaving_.size(); }
  std::string describe() const override;
  std::vector<BatchField> fields() const override { return sources_[0].data->fields(); }
  nlohmann::json learned() const override { return sources_[0].data->learned(); }

  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    const auto [source, index] = interleaving_[position];
    const int64_t size = sources_[source].data->size(), drawn = epoch * counts_[source] + index;
    const auto seed = static_cast<int64_t>(mix64(static_cast<uint64_t>(options.seed) + source));
    return firsts_[source] + SampleOrder(size, options.shuffle, seed, drawn / size)[drawn % size];
  }

  int64_t cut_texts() const override {
    int64_t count = 0;
    for (const auto& source : sources_) count += source.data->cut_texts();
    return count;
  }

 private:
  Place find(int64_t sample) const override {
    RUNNER_CHECK(sample >= 0 && sample < samples_);
    const auto index = static_cast<size_t>(std::ranges::upper_bound(firsts_, sample) - firsts_.begin()) - 1;
    return {.part = sources_[index].data.get(), .sample = sample - firsts_[index], .index = index};
  }

  std::vector<MixtureSource> sources_;
  std::vector<int64_t> counts_, firsts_;
  int64_t samples_ = 0;
  Interleaving interleaving_;
};

std::string MixtureDataset::describe() const {
  std::string text = fmt::format("{} an epoch from {} sources", counted(size(), "sample"), sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i)
    text += fmt::format("\n  {}: {:.1f} % of the samples, {:.2f} times {}", sources_[i].name,
                        100 * static_cast<double>(counts_[i]) / static_cast<double>(size()),
                        static_cast<double>(counts_[i]) / static_cast<double>(sources_[i].data->size()),
                        sources_[i].data->describe());
  return text;
}

}  // namespace

// As in Huffman's code, the two smallest nodes become one. The error of a part is at most half a sample more than its share of the
// error of the whole, and large sources are near the root.
Interleaving::Interleaving(const std::vector<int64_t>& counts) {
  RUNNER_CHECK(!counts.empty());
  const auto later = [&](size_t a, size_t b) { return std::pair(nodes_[a].count, a) > std::pair(nodes_[b].count, b); };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> open(later);
  for (size_t i = 0; i < counts.size(); ++i) {
    nodes_.push_back({.count = counts[i], .source = i});
    open.push(i);
  }
  while (open.size() > 1) {
    const size_t second = open.top();
    open.pop();
    const size_t first = open.top();
    open.pop();
    nodes_.push_back({.count = nodes_[first].count + nodes_[second].count,
                      .first = static_cast<int64_t>(first),
                      .second = static_cast<int64_t>(second)});
    open.push(nodes_.size() - 1);
  }
}

Interleaving::Item Interleaving::operator[](int64_t position) const {
  RUNNER_CHECK(position >= 0 && position < size());
  const Node* node = &nodes_.back();
  while (node->first >= 0) {
    const Node& first = nodes_[static_cast<size_t>(node->first)];
    const int64_t before = taken_by_first(position, first.count, node->count);
    const bool in_first = taken_by_first(position + 1, first.count, node->count) > before;
    node = in_first ? &first : &nodes_[static_cast<size_t>(node->second)];
    position = in_first ? before : position - before;
  }
  return {node->source, position};
}

std::vector<int64_t> mixture_counts(const std::vector<int64_t>& sizes, const std::vector<MixtureSource>& sources,
                                    double temperature, MixtureEnd end) {
  std::vector<double> shares, available;
  for (size_t i = 0; i < sizes.size(); ++i) {
    available.push_back(static_cast<double>(sizes[i] * sources[i].epochs));
    shares.push_back(sources[i].weight ? *sources[i].weight : std::pow(available[i], 1 / temperature));
  }
  const bool natural = !sources[0].weight && temperature == 1;
  // The largest epoch in which no source, or the smallest in which each source, is taken completely.
  double scale = end == MixtureEnd::first_exhausted ? INFINITY : 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    scale = end == MixtureEnd::first_exhausted ? std::min(scale, available[i] / shares[i])
                                               : std::max(scale, available[i] / shares[i]);
  std::vector<int64_t> counts;
  for (size_t i = 0; i < sizes.size(); ++i)
    counts.push_back(natural ? sizes[i] * sources[i].epochs
                             : std::max<int64_t>(1, static_cast<int64_t>(std::llround(shares[i] * scale))));
  return counts;
}

std::unique_ptr<Dataset> mixture_dataset(std::vector<MixtureSource> sources, std::vector<int64_t> counts) {
  return std::make_unique<MixtureDataset>(std::move(sources), std::move(counts));
}

}  // namespace runner
