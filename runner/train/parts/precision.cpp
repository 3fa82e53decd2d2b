#include "runner/train/parts/precision.hpp"

#include <dlfcn.h>

#include <cmath>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/train/parts/torch_parts.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const precision_key = "plugins.precision";

const torch_parts::Library& torch_library(const std::string& path, const char* key) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("{}: cannot load {}: {}", key, path, dlerror());
  auto* const entry = reinterpret_cast<const torch_parts::Library* (*)()>(dlsym(library, "runner_torch_parts"));
  if (!entry)
    throw usage_error(
        "{}: {} exports no parts: the function runner_torch_parts() is missing; RUNNER_TORCH_PARTS(...) defines it",
        key, path);
  const auto* const found = entry();
  if (found->version != torch_parts::version)
    throw usage_error(
        "{}: {} was built for version {} of the interface of parts, and this program has version {}; build it again "
        "with the header of this program",
        key, path, found->version, torch_parts::version);
  if (std::string(found->torch_version) != TORCH_VERSION)
    throw usage_error("{}: {} was built with LibTorch {}, and this program uses {}; build it again", key, path,
                      found->torch_version, TORCH_VERSION);
  return *found;
}

std::unique_ptr<torch_parts::Precision> make_precision(const std::string& path, const plugin::Options& options) {
  const auto& library = torch_library(path, precision_key);
  if (!library.precision) throw usage_error("{}: {} has no part `precision`", precision_key, path);
  auto made = [&] {
    try {
      return library.precision(options);
    } catch (const std::exception& error) {
      throw usage_error("{}: the plug-in {} failed: {}", precision_key, path, first_line(error.what()));
    }
  }();
  if (!made) throw usage_error("{}: the plug-in {} made no part `precision`", precision_key, path);
  return made;
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

int answer_precision_request(const std::string& question, const std::string& answer) {
  json result;
  try {
    result = describe_precision(json::parse(read_file(question)));
  } catch (const std::exception& error) {
    result = {{"error", error.what()}};
  }
  write_file_atomic(answer, json_text(result));
  return 0;
}

}  // namespace runner
