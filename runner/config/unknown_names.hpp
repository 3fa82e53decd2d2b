// Mistakes for names that recipes do not have, with the name that was probably meant.
#pragma once
#include <string>

#include "runner/config/diagnostics.hpp"
#include "runner/config/foreign_names.hpp"

namespace runner {

/// Completes the mistake about an unknown `name`: what it means in a recipe, if it is a name of another section or tool, with the line
/// for `value`; otherwise the nearest of `known`, which are also `allowed`. `in_help`: the command that lists them.
void answer_unknown(Diagnostic& diagnostic, const std::string& name, const nlohmann::json& value,
                    const std::vector<std::string>& known, const std::string& in_help, FindName names);

/// A name outside the sections. `table`: it is written as a section. The mistake belongs to the section that was probably meant.
Diagnostic unknown_section(const std::string& name, bool table, const nlohmann::json& value, const Origin& place,
                           FindName names);
/// A key of `section`, which may be one of another tool's files.
Diagnostic unknown_key(const std::string& section, const std::string& name, const nlohmann::json& value,
                       const Origin& place, FindName names);
/// A key or section in `unset`.
Diagnostic unknown_removal(const std::string& name, const Origin& place, FindName names);

}  // namespace runner
