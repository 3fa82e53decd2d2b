#include "strategies/mesh/context_form.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

const std::vector<std::string>& context_form_names() {
  static const std::vector<std::string> names = {"gather", "ring", "ulysses"};
  return names;
}

const std::string& name_of(ContextForm form) { return context_form_names()[static_cast<size_t>(form)]; }

ContextForm context_form(const std::string& name) {
  const auto found = std::ranges::find(context_form_names(), name);
  RUNNER_CHECK(found != context_form_names().end(), "no form of a context axis is called `{}`", name);
  return static_cast<ContextForm>(found - context_form_names().begin());
}

}  // namespace runner
