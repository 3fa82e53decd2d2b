// A data set whose samples are those of other data sets.
#pragma once
#include <algorithm>

#include "runner/data/data.hpp"

namespace runner {

/// Each call for a sample goes to the data set that contains it.
class CompositeDataset : public Dataset {
 public:
  /// For each field the largest row of any sample.
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    std::vector<BatchField> largest;
    for (const int64_t sample : samples) {
      const Place place = find(sample);
      const auto fields = place.part->fields_of(std::span(&place.sample, 1));
      if (largest.empty()) largest = fields;
      for (size_t i = 0; i < fields.size(); ++i)
        for (size_t d = 0; d < fields[i].row.size(); ++d)
          largest[i].row[d] = std::max(largest[i].row[d], fields[i].row[d]);
    }
    return largest.empty() ? fields() : largest;
  }
  int64_t weight(int64_t sample) const override {
    const Place place = find(sample);
    return place.part->weight(place.sample);
  }
  int64_t units(int64_t sample) const override {
    const Place place = find(sample);
    return place.part->units(place.sample);
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    const Place place = find(sample);
    place.part->read(place.sample, batch, row);
  }
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    const Place place = find(sample);
    place.part->draw(place.sample, batch, row, draw);
  }

 protected:
  /// A sample of one of the data sets.
  struct Place {
    const Dataset* part;
    int64_t sample;    ///< of the part
    size_t index = 0;  ///< of the part
  };
  virtual Place find(int64_t sample) const = 0;
};

}  // namespace runner
