#include "strategies/contract/conversion.hpp"

#include <fmt/ranges.h>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::string description_of(const torch::Tensor& tensor) {
  return fmt::format("{} [{}] on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ", "),
                     tensor.device().str());
}

template <typename Call>
auto named_failure(const char* function, const std::string& name, Call&& call) {
  try {
    return call();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw run_error("plugins.precision: {}() failed for the parameter `{}`: {}", function, name,
                    first_line(error.what()));
  }
}

}  // namespace

torch::Tensor convert(Conversion& conversion, const torch::Tensor& value, const std::string& name) {
  const auto before = value._version();
  auto result = named_failure("parameter", name, [&] { return conversion.parameter(value, name); });
  const auto require = [&](bool condition, const std::string& mistake) {
    if (!condition) throw run_error("plugins.precision: parameter() of `{}` {}", name, mistake);
  };
  require(value._version() == before, "changed the value in place: return another tensor");
  require(result.defined(), "returned no tensor");
  require(result.sizes() == value.sizes() && result.scalar_type() == value.scalar_type() &&
              result.device() == value.device(),
          fmt::format("must return {}, as the value, not {}", description_of(value), description_of(result)));
  require(!value.requires_grad() || !torch::GradMode::is_enabled() || result.requires_grad(),
          "returned a tensor that does not depend on the value for autograd, so the parameter would not be trained: "
          "value + (result - value).detach() passes the gradient on");
  return result.contiguous();
}

void convert_gradient(Conversion& conversion, const torch::Tensor& gradient, const GradientRange& range) {
  named_failure("gradient", range.name, [&] { conversion.gradient(gradient, range); });
}

std::vector<size_t> converted_slots(const ModelSpec& spec, size_t block) {
  const auto parameters = spec.parameters();
  std::vector<size_t> slots;
  const auto take = [&](const std::string& name) {
    if (const size_t slot = spec.slot(name); parameters[slot]->converted) slots.push_back(slot);
  };
  for (const auto& parameter : spec.blocks[block].parameters) take(parameter.name);
  for (const auto& name : spec.blocks[block].shared) take(name);
  return slots;
}

}  // namespace runner
