#include "runner/data/joined_dataset.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/data/largest_fields.hpp"

namespace runner {

namespace {

class JoinedDataset final : public Dataset {
 public:
  explicit JoinedDataset(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      firsts_.push_back(samples_);
      samples_ += part->size();
    }
  }

  int64_t size() const override { return samples_; }
  std::vector<BatchField> fields() const override { return parts_.front()->fields(); }
  nlohmann::json learned() const override { return parts_.front()->learned(); }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    if (samples.empty()) return fields();
    return largest_fields(samples, [this](int64_t sample) {
      const auto [part, own] = find(sample);
      return part->fields_of(std::span(&own, 1));
    });
  }
  int64_t weight(int64_t sample) const override {
    const auto [part, own] = find(sample);
    return part->weight(own);
  }
  int64_t units(int64_t sample) const override {
    const auto [part, own] = find(sample);
    return part->units(own);
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const auto [part, own] = find(sample);
    part->read(own, batch, row);
  }
  int64_t cut_texts() const override {
    int64_t count = 0;
    for (const auto& part : parts_) count += part->cut_texts();
    return count;
  }

 private:
  struct Place {
    const Dataset* part;
    int64_t sample;
  };
  Place find(int64_t sample) const {
    RUNNER_CHECK(sample >= 0 && sample < samples_);
    const auto index = static_cast<size_t>(std::ranges::upper_bound(firsts_, sample) - firsts_.begin()) - 1;
    return {parts_[index].get(), sample - firsts_[index]};
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int64_t> firsts_;
  int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> joined_dataset(std::vector<std::unique_ptr<Dataset>> parts) {
  RUNNER_CHECK(!parts.empty());
  return parts.size() == 1 ? std::move(parts.front()) : std::make_unique<JoinedDataset>(std::move(parts));
}

}  // namespace runner
