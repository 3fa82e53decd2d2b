// The samples of a plug-in: rows of fields with fixed types and shapes.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/order.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

namespace {

/// The samples of one path.
struct PluginPart {
  int64_t first = 0, count = 0;       ///< in the numbers of all paths
  std::vector<int32_t> weights = {};  ///< empty: the usual one
};

class PluginDataset final : public Dataset {
 public:
  PluginDataset(const Recipe::Data& data, const std::vector<std::string>& paths, int64_t seq_len, int64_t vocab_size)
      : source_(std::make_unique<PluginSource>(data, paths, seq_len, data.num_workers.value_or(1))) {
    for (size_t p = 0; p < paths.size(); ++p) {
      const auto content = source_->content(p);
      if (content.records)
        throw usage_error("data.plugin: {} gives records, and samples are needed here", *data.plugin);
      if (p == 0) {
        fields_ = content.fields;
        classes_ = content.classes;
      } else if (runner::describe(content.fields) != runner::describe(fields_)) {
        throw usage_error("data.plugin: {} has {}, and {} has {}", paths[p], runner::describe(content.fields), paths[0],
                          runner::describe(fields_));
      }
      parts_.push_back({.first = total_, .count = content.count, .weights = weights(p, content)});
      total_ += content.count;
    }
    order_fields();
    samples_.resize(static_cast<size_t>(total_));
    std::iota(samples_.begin(), samples_.end(), int64_t{0});
    for (size_t f = 0; f < fields_.size(); ++f) {
      const bool target = fields_[f].name == row_field::targets_name || fields_[f].name == row_field::labels_name;
      const bool tokens = target || fields_[f].name == token_field::inputs_name;
      if (target && fields_[f].type == ElementType::int64) counted_ = f;
      if (tokens && fields_[f].type == ElementType::int64 && classes_[f] == 0) classes_[f] = vocab_size;
    }
  }

  /// Keeps the samples of a split.
  void keep(double fraction, Split split) { keep_random_part(samples_, fraction, split, "samples"); }

  int64_t size() const override { return std::ssize(samples_); }
  std::string describe() const override {
    return fmt::format("{} of {}", counted(size(), "sample"), runner::describe(fields_));
  }
  std::vector<BatchField> fields() const override {
    std::vector<BatchField> ordered(fields_.size());
    for (size_t f = 0; f < fields_.size(); ++f) ordered[places_[f]] = fields_[f];
    return ordered;
  }

  int64_t weight(int64_t sample) const override {
    const auto [part, own] = find(sample);
    if (!parts_[part].weights.empty()) return parts_[part].weights[static_cast<size_t>(own)];
    return counted_ ? fields_[*counted_].row_elements() : 1;
  }

  /// A mistake counts those of the samples behind it, as far as they are read within a second.
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    FaultyRows faulty;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    do try {
        read_one(sample, batch, row);
        if (!faulty.any()) return;
      } catch (const Error& error) {
        if (faulty.any() && error.code() != ExitCode::usage) break;
        faulty.add(error, [&] { return place(find(sample)); });
      }
    while (++sample < size() && !faulty.enough() && std::chrono::steady_clock::now() < end);
    faulty.raise(/*all=*/false);
  }

 private:
  struct Place {
    size_t part;
    int64_t own;
  };
  Place find(int64_t sample) const {
    const int64_t index = samples_.at(static_cast<size_t>(sample));
    const auto behind = std::ranges::upper_bound(parts_, index, {}, &PluginPart::first);
    const auto part = static_cast<size_t>(behind - parts_.begin()) - 1;
    return {part, index - parts_[part].first};
  }
  std::string place(const Place& of) const { return fmt::format("{}, sample {}", source_->paths()[of.part], of.own); }

  void read_one(int64_t sample, HostBatch& batch, int64_t row) const {
    const auto [part, own] = find(sample);
    const std::string bytes = source_->ask(
        {.kind = PluginQuestion::Kind::sample, .source = static_cast<uint32_t>(part), .begin = own, .end = own + 1});
    size_t at = 0;
    for (size_t f = 0; f < fields_.size(); ++f) {
      const auto size = static_cast<size_t>(fields_[f].row_bytes());
      std::memcpy(batch.fields.at(places_[f]).bytes.data() + static_cast<size_t>(row) * size, bytes.data() + at, size);
      at += size;
    }
    RUNNER_CHECK(at == bytes.size());
    check(sample, place({part, own}), batch, row);
  }

  void order_fields() {
    const auto rank = [](const std::string& name) {
      if (name == token_field::inputs_name || name == row_field::features_name || name == row_field::pixels_name)
        return 0;
      return name == row_field::targets_name || name == row_field::labels_name ? 1 : 2;
    };
    std::vector<size_t> order(fields_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t f) { return rank(fields_[f].name); });
    places_.resize(order.size());
    for (size_t place = 0; place < order.size(); ++place) places_[order[place]] = place;
  }

  std::vector<int32_t> weights(size_t path, const PluginContent& content) {
    if (!content.weighs) return {};
    const auto bytes = source_->ask({.kind = PluginQuestion::Kind::weights, .source = static_cast<uint32_t>(path)});
    std::vector<int32_t> weights(bytes.size() / sizeof(int32_t));
    std::memcpy(weights.data(), bytes.data(), bytes.size());
    return weights;
  }

  template <typename Element>
  void check_range(size_t f, const std::string& place, std::span<const Element> values) const {
    const bool target = fields_[f].padding == ignored_target;
    for (const Element value : values)
      if ((value < 0 || static_cast<int64_t>(value) >= classes_[f]) &&
          !(target && static_cast<int64_t>(value) == ignored_target))
        throw usage_error("{}: the field `{}` contains {}, and must be at least 0 and less than {}", place,
                          fields_[f].name, value, classes_[f]);
  }

  /// A wrong index would end in a lookup that the device does not check, and a wrong weight in a wrong loss.
  void check(int64_t sample, const std::string& place, const HostBatch& batch, int64_t row) const {
    for (size_t f = 0; f < fields_.size(); ++f) {
      if (classes_[f] == 0) continue;
      if (fields_[f].type == ElementType::int64) check_range(f, place, batch.row<int64_t>(places_[f], row));
      if (fields_[f].type == ElementType::int32) check_range(f, place, batch.row<int32_t>(places_[f], row));
    }
    if (!counted_) return;
    const auto targets = batch.row<int64_t>(places_[*counted_], row);
    const auto count = std::ssize(targets) - std::ranges::count(targets, ignored_target);
    if (count != weight(sample))
      throw usage_error(
          "{}: {} of `{}` count, and the weight of the sample is {}: the plug-in needs a function `weight` that "
          "returns how many targets are not {}",
          place, count, fields_[*counted_].name, weight(sample), ignored_target);
  }

  std::unique_ptr<PluginSource> source_;
  int64_t total_ = 0;
  std::vector<BatchField> fields_ = {};  ///< in the order of the plug-in
  std::vector<size_t> places_ =
      {};  ///< of each field in a batch: first what a model reads, then its targets, then others
  std::vector<int64_t> classes_ = {};
  std::vector<PluginPart> parts_ = {};
  std::vector<int64_t> samples_ = {};   ///< of the split, in the numbers of all paths
  std::optional<size_t> counted_ = {};  ///< the field whose elements count in the loss
};

}  // namespace

std::unique_ptr<Dataset> open_plugin_samples(const Recipe::Data& data, Split split, int64_t seq_len,
                                             int64_t vocab_size) {
  if (split == Split::validation && data.validation.empty() && !data.validation_fraction) return nullptr;
  const bool own = split == Split::validation && !data.validation.empty();
  const auto& paths = own ? data.validation : data.train;
  check_source_paths(own ? "data.validation" : "data.train", paths);
  auto dataset = std::make_unique<PluginDataset>(data, paths, seq_len, vocab_size);
  if (!own && data.validation_fraction) dataset->keep(*data.validation_fraction, split);
  return dataset;
}

}  // namespace runner
