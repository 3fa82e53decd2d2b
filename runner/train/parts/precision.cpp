#include "runner/train/parts/precision.hpp"

#include <cmath>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/train/parts/torch_library.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const precision_key = "plugins.precision";

std::unique_ptr<torch_parts::Precision> make_precision(const std::string& path, const plugin::Options& options) {
  return make_torch_part(path, precision_key, "precision", &torch_parts::Library::precision, options);
}

torch_parts::PrecisionFacts checked_facts(const torch_parts::Precision& precision, const std::string& path) {
  auto facts = precision.facts();
  for (const auto& [name, bytes] : {std::pair("kept_bytes", facts.kept_bytes), {"working_bytes", facts.working_bytes}})
    if (bytes && !(*bytes >= 0 && std::isfinite(*bytes)))
      throw usage_error("{}: {} of {} is {}; it must be a number of at least 0", precision_key, name, path, *bytes);
  return facts;
}

class PrecisionPart final : public Conversion {
 public:
  explicit PrecisionPart(std::unique_ptr<torch_parts::Precision> part) : part_(std::move(part)) {}
  torch::Tensor parameter(const torch::Tensor& value, const std::string& name) override {
    return part_->parameter(value, name);
  }
  void gradient(const torch::Tensor& gradient, const GradientRange& range) override {
    part_->gradient(gradient, {.name = range.name, .shape = range.shape, .offset = range.offset, .scale = range.scale});
  }

 private:
  std::unique_ptr<torch_parts::Precision> part_;
};

}  // namespace

std::shared_ptr<Conversion> open_precision(Recipe& recipe) {
  if (!recipe.plugins.precision) return nullptr;
  const auto& path = *recipe.plugins.precision;
  auto part = make_precision(path, plugin_options(recipe.plugins.options, "plugins.options"));
  const auto facts = checked_facts(*part, path);
  recipe.plugins.converted = {.patterns = facts.parameters,
                              .matrices_only = facts.matrices_only,
                              .kept_bytes = facts.kept_bytes,
                              .working_bytes = facts.working_bytes};
  return std::make_shared<PrecisionPart>(std::move(part));
}

json describe_precision(const json& request) {
  const std::string path = request.at("plugin");
  const auto options = plugin_options(request.at("options"), "plugins.options");
  const auto part = make_precision(path, options);
  const auto facts = checked_facts(*part, path);
  const auto number = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  return {{"mode", facts.mode},
          {"asked", options.asked()},
          {"parameters", facts.parameters},
          {"matrices_only", facts.matrices_only},
          {"kept_bytes", number(facts.kept_bytes)},
          {"working_bytes", number(facts.working_bytes)}};
}

}  // namespace runner
