// A data set whose samples are those of other data sets.
#pragma once
#include "runner/data/data.hpp"

namespace runner {

/// Each call for a sample goes to the data set that contains it.
class CompositeDataset : public Dataset {
 public:
  /// For each field the largest row of any sample.
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override;
  int64_t weight(int64_t sample) const override;
  int64_t units(int64_t sample) const override;
  void read(int64_t sample, HostBatch& batch, int64_t row) const override;
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override;

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
