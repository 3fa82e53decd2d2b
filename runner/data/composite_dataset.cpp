#include "runner/data/composite_dataset.hpp"

#include <algorithm>

namespace runner {

std::vector<BatchField> CompositeDataset::fields_of(std::span<const int64_t> samples) const {
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

int64_t CompositeDataset::weight(int64_t sample) const {
  const Place place = find(sample);
  return place.part->weight(place.sample);
}

int64_t CompositeDataset::units(int64_t sample) const {
  const Place place = find(sample);
  return place.part->units(place.sample);
}

void CompositeDataset::read(int64_t sample, HostBatch& batch, int64_t row) const {
  const Place place = find(sample);
  place.part->read(place.sample, batch, row);
}

void CompositeDataset::draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const {
  const Place place = find(sample);
  place.part->draw(place.sample, batch, row, draw);
}

}  // namespace runner
