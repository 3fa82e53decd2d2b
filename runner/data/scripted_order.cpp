#include "runner/data/scripted_order.hpp"

#include <mutex>

#include "runner/base/error.hpp"
#include "runner/lua/script_file.hpp"

namespace runner {

namespace {

class ScriptedOrder final : public Dataset {
 public:
  ScriptedOrder(std::unique_ptr<Dataset> data, const Recipe& recipe)
      : data_(std::move(data)), state_(lua::script_state_options(recipe)) {
    std::vector<Diagnostic> diagnostics;
    auto file = lua::load_order_file(state_, recipe, diagnostics);
    if (!file) throw RecipeError(diagnostics);
    sample_ = file->functions.at("sample");
    name_ = file->shown;
  }

  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    const auto usual = data_->sample_at(epoch, position, options);
    const std::lock_guard lock(mutex_);
    const auto sample = state_.call(sample_, {nlohmann::json(position + 1), nlohmann::json(epoch + 1),
                                              nlohmann::json(size()), nlohmann::json(usual + 1)});
    if (!sample.plain.is_number_integer() || sample.plain < 1 || sample.plain > size())
      throw usage_error("{}: sample({}, {}, {}, {}) must return a sample from 1 to {}, not {}", name_, position + 1,
                        epoch + 1, size(), usual + 1, size(),
                        sample.plain.is_null() ? lua::kind_of(sample) : sample.plain.dump());
    return sample.plain.get<int64_t>() - 1;
  }

  int64_t size() const override { return data_->size(); }
  std::string describe() const override { return data_->describe() + ", in the order of " + name_; }
  std::vector<BatchField> fields() const override { return data_->fields(); }
  int64_t weight(int64_t sample) const override { return data_->weight(sample); }
  int64_t units(int64_t sample) const override { return data_->units(sample); }
  std::vector<BatchField> fields_of(std::span<const int64_t> samples) const override {
    return data_->fields_of(samples);
  }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override { data_->read(sample, batch, row); }
  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    data_->draw(sample, batch, row, draw);
  }
  int64_t rows_together() const override { return data_->rows_together(); }
  nlohmann::json learned() const override { return data_->learned(); }

 private:
  std::unique_ptr<Dataset> data_;
  mutable std::mutex mutex_;  ///< guards the state
  mutable lua::State state_;
  lua::Reference sample_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Dataset> with_scripted_order(std::unique_ptr<Dataset> data, const Recipe& recipe) {
  if (!recipe.data.order) return data;
  return std::make_unique<ScriptedOrder>(std::move(data), recipe);
}

}  // namespace runner
