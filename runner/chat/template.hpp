// Jinja templates of chat models: parsed once, rendered many times.
//
// The language is jinja2 3.1 as transformers sets it up for chat templates (ImmutableSandboxedEnvironment, trim_blocks and
// lstrip_blocks on, loop controls, {% generation %}, its own tojson). Supported:
//   statements  if/elif/else, for (tuple targets, if, else, recursive), set (also namespaces and blocks), with, macro, call, filter,
//               print, break, continue, generation, raw, comments; white space control with "-" and "+"
//   expressions all of jinja2: if/else, or, and, not, comparisons in chains, in, ~, + - * / // % **, filters, tests, calls with
//               *args and **kwargs, attributes, indices, slices with steps, lists, tuples, dictionaries
//   loop.       index, index0, revindex, revindex0, first, last, length, previtem, nextitem, depth, depth0, cycle, changed
//   functions   range, dict, namespace, cycler, joiner, raise_exception, strftime_now
//   filters, tests and methods: the tables in text_filters.cpp, sequence_filters.cpp, value_filters.cpp,
//               text_methods.cpp, builtins.cpp. Those that jinja2 or Python has and this engine has not are refused by name.
// Not supported: include, import, extends, block, autoescape, do; arithmetic with integers of more than 64 bits; \N{..} in
// strings; upper and lower case outside the scripts that unicode.hpp names.
// Filters that give generators (map, select ..) run at once, not on demand.
// A difference of scopes: if an outer scope assigns a name later, jinja2 finds that name undefined in inner scopes before; here it
// is the variable given to the template.
// Printing a function or generator, which jinja2 prints as a memory address, is an error here.
//
// A template is untrusted: it cannot change its data, and its size (template_bytes_max), its steps, output, nesting and the memory of
// its values are bounded (Limits).
// Rendering does not change a Template, so threads may share one.
#pragma once
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runner/chat/interpreter.hpp"
#include "runner/chat/template_error.hpp"

namespace runner::jinja {

struct RenderOptions {
  Limits limits = {};
  std::optional<std::time_t> now = {};  ///< time of strftime_now, in the local time zone; nothing: the clock
};

class Template {
 public:
  /// `name` is written in errors: a path, or the name of a built-in template. Raises TemplateError.
  Template(std::string name, std::string_view text)
      : tree_(std::make_shared<Tree>(parse_template(std::move(name), text))) {}

  /// Raises TemplateError, and RaisedByTemplate for raise_exception.
  Rendered render(const nlohmann::ordered_json& variables, const RenderOptions& options = {}) const {
    Value value;
    try {
      value = Value::from_json(variables);
    } catch (const Fault& fault) {
      throw usage_error("{}: the variables of the template cannot be used: {}", name(), fault.message);
    }
    RUNNER_CHECK(value.is_dict());
    return render(value.as_dict(), options);
  }
  Rendered render(const Dict& variables, const RenderOptions& options = {}) const {
    return Interpreter(*tree_, options.limits, options.now).render(variables);
  }

  const std::string& name() const { return tree_->name; }
  const std::string& source() const { return tree_->source; }
  bool has_generation_blocks() const { return tree_->has_generation; }

 private:
  std::shared_ptr<const Tree> tree_;
};

}  // namespace runner::jinja
