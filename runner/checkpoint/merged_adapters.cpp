// Base weights with adapters added (W + scale B A, for DoRA with the magnitudes as lengths of the rows).
#include <cmath>
#include <map>

#include "runner/base/error.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/models/adapters.hpp"

namespace runner {

namespace {

/// A matrix with an adapter, and the adapter's values. Reads rows of the sum.
class MergedMatrix {
 public:
  /// `matrix`, `names`: of the parameters of `spec`.
  MergedMatrix(const ModelSpec& spec, const ParameterReader& read, size_t matrix, const AdapterNames& names)
      : read_(read),
        matrix_(matrix),
        rank_(spec.adapter->rank),
        columns_(spec.parameters()[matrix]->shape.back()),
        scale_(spec.adapter->scale),
        a_(values_of(spec, names.a)),
        b_(values_of(spec, names.b)) {
    if (spec.adapter->magnitudes) find_factors(values_of(spec, names.magnitude));
  }

  /// Elements [offset, offset + out.size()), in any parts of rows.
  void read(int64_t offset, std::span<float> out) const {
    read_(matrix_, offset, out);
    for (size_t done = 0; done < out.size();) {
      const int64_t element = offset + static_cast<int64_t>(done), row = element / columns_,
                    column = element % columns_;
      const auto count = std::min(out.size() - done, static_cast<size_t>(columns_ - column));
      add(row, column, out.subspan(done, count));
      const double factor = factors_.empty() ? 1 : factors_[static_cast<size_t>(row)];
      if (factor != 1)
        for (auto& value : out.subspan(done, count)) value = static_cast<float>(factor * value);
      done += count;
    }
  }

 private:
  std::vector<float> values_of(const ModelSpec& spec, const std::string& name) const {
    const size_t slot = spec.slot(name);
    std::vector<float> values(static_cast<size_t>(spec.numel(slot)));
    read_(slot, 0, values);
    return values;
  }

  /// Adds scale B A to a part of a row.
  void add(int64_t row, int64_t column, std::span<float> out) const {
    std::vector<double> sum(out.size());
    for (int64_t k = 0; k < rank_; ++k) {
      const double factor = b_[static_cast<size_t>(row * rank_ + k)];
      const float* a = a_.data() + k * columns_ + column;
      for (size_t i = 0; i < out.size(); ++i) sum[i] += factor * a[i];
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(out[i] + scale_ * sum[i]);
  }

  /// The magnitudes relative to the norms of the rows.
  void find_factors(const std::vector<float>& magnitudes) {
    std::vector<float> row(static_cast<size_t>(columns_));
    for (size_t r = 0; r < magnitudes.size(); ++r) {
      read_(matrix_, static_cast<int64_t>(r) * columns_, row);
      add(static_cast<int64_t>(r), 0, row);
      double squares = 0;
      for (float value : row) squares += static_cast<double>(value) * value;
      factors_.push_back(squares > 0 ? magnitudes[r] / std::sqrt(squares) : 1);
    }
  }

  const ParameterReader& read_;
  size_t matrix_;
  int64_t rank_, columns_;
  double scale_;
  std::vector<float> a_, b_;
  std::vector<double> factors_;
};

}  // namespace

ParameterReader merged_reader(const ModelSpec& spec, const ModelSpec& base, ParameterReader read) {
  struct Place {
    size_t slot;  ///< of the parameter in `spec`
    std::optional<AdapterNames> adapter = {};
  };
  std::map<std::string, size_t> slots;
  const auto parameters = spec.stored();
  for (size_t slot = 0; slot < parameters.size(); ++slot) slots[parameters[slot]->name] = slot;
  std::vector<Place> places;
  for (const auto* parameter : base.stored()) {
    const auto names = adapter_names(parameter->name);
    const bool adapted = adapted_matrix(names.a) == parameter->name && slots.contains(names.a);  // not the bias
    places.push_back({.slot = slots.at(parameter->name), .adapter = adapted ? std::optional(names) : std::nullopt});
  }
  struct Last {
    size_t slot = SIZE_MAX;
    std::optional<MergedMatrix> matrix = {};
  };
  const auto last = std::make_shared<Last>();
  const auto reader = std::make_shared<ParameterReader>(std::move(read));
  const auto own = std::make_shared<const ModelSpec>(spec);
  return [=](size_t slot, int64_t offset, std::span<float> out) {
    const auto& place = places[slot];
    if (!place.adapter) return (*reader)(place.slot, offset, out);
    if (last->slot != slot) {
      last->matrix.reset();
      last->matrix.emplace(*own, *reader, place.slot, *place.adapter);
      last->slot = slot;
    }
    last->matrix->read(offset, out);
  };
}

}  // namespace runner
