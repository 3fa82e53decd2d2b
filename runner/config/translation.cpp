#include "runner/config/translation.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

std::string section_of(const std::string& dotted) { return dotted.substr(0, dotted.find('.')); }

}  // namespace

const ForeignName* Translation::find(const std::string& dotted) const {
  const auto* foreign = find_foreign_name(dotted, names_);
  if (!foreign) foreign = find_foreign_name(dotted.substr(dotted.find('.') + 1), names_);
  if (!foreign || foreign->only_suggested) return nullptr;
  const auto& sections = foreign->sections;
  return sections.empty() || std::ranges::find(sections, section_of(dotted)) != sections.end() ? foreign : nullptr;
}

void Translation::translate(Layer& own, const Layer& below) {
  auto text_of = [&](const std::string& key) -> std::string {
    const Layer& layer = own.contains(key) ? own : below;
    auto found = layer.find(key);
    return found != layer.end() && found->second.value.is_string() ? found->second.value.get<std::string>() : "";
  };
  // A strategy in Lua defines the names of its options.
  const bool script = text_of("strategy.name").starts_with("lua:") || !text_of("strategy.registry").empty();
  for (const auto& [dotted, located] : Layer(own)) {
    const auto section = section_of(dotted);
    const auto* foreign = section == "hooks" || find_key(dotted) ? nullptr : find(dotted);
    if (foreign && (section != "strategy" || (foreign->in_strategy && !script)))
      translate(own, dotted, *foreign, text_of("model.name"));
  }
}

void Translation::translate(Layer& own, const std::string& dotted, const ForeignName& foreign,
                            const std::string& family) {
  const Located given = own.at(dotted);
  own[dotted] = {.value = nullptr, .origin = given.origin, .folder = given.folder};
  const bool option = section_of(dotted) == "strategy";
  const auto problem = [&](const char* code, const std::string& message) -> Diagnostic& {
    diagnostics_.push_back(
        {.place = given.origin, .code = code, .message = message, .section = option ? "strategy" : ""});
    return diagnostics_.back();
  };
  const auto meant = foreign.meaning ? foreign.meaning(given.value) : std::nullopt;
  if (!meant) {
    auto what = foreign.meaning ? fmt::format("`{}` cannot be {}", foreign.name, toml_value(given.value))
                                : fmt::format("`{}` is not an option here", foreign.name);
    problem("refused", what + ": " + foreign.refusal);
    return;
  }
  std::vector<std::string> parts;
  // The note of a name for a key of some families is for the others, for which the name has no effect.
  const Key* of_families = find_key(foreign.key);
  if (of_families && of_families->family.empty()) of_families = nullptr;
  const bool applies = !of_families || foreign.note.empty() || of_families->in_family(family);
  for (const auto& [key, value] : applies ? *meant : ForeignName::Values()) {
    parts.push_back(fmt::format("{} = {}", key, toml_value(value)));
    auto before = own.find(key);
    if (before != own.end() && before->second.value != value) {
      auto& diagnostic = problem("contradiction", fmt::format("`{}` means {}, and {} = {}", foreign.name, parts.back(),
                                                              key, toml_value(before->second.value)));
      diagnostic.other = before->second.origin;
      diagnostic.other_message = key + " is set here";
    } else if (before == own.end()) {
      own[key] = {.value = value,
                  .origin = given.origin,
                  .folder = given.folder,
                  .of_strategy = option,
                  .written = foreign.name};
    }
  }
  if (!parts.empty()) parts = {"read as " + join(parts, ", ")};
  if (!foreign.note.empty() && !(of_families && applies)) parts.push_back(foreign.note);
  own[dotted].note = fmt::format("`{}`: {}", foreign.name, join(parts, "; "));
}

}  // namespace runner
