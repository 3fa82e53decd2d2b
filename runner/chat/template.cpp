#include "runner/chat/template.hpp"

namespace runner::jinja {

Template::Template(std::string name, std::string_view text)
    : tree_(std::make_shared<Tree>(parse_template(std::move(name), text))) {}

Rendered Template::render(const nlohmann::ordered_json& variables, const RenderOptions& options) const {
  Value value;
  try {
    value = Value::from_json(variables);
  } catch (const Fault& fault) {
    throw usage_error("{}: the variables of the template cannot be used: {}", name(), fault.message);
  }
  RUNNER_CHECK(value.is_dict());
  return render(value.as_dict(), options);
}

Rendered Template::render(const Dict& variables, const RenderOptions& options) const {
  return Interpreter(*tree_, options.limits, options.now).render(variables);
}

}  // namespace runner::jinja
