// Mistakes for names that recipes do not have, with the name that was probably meant.
#pragma once
#include <string>

#include "runner/config/diagnostics.hpp"
#include "runner/config/foreign_names.hpp"

namespace runner {

/// A name outside the sections. `table`: it is written as a section. The mistake belongs to the section that was probably meant.
Diagnostic unknown_section(const std::string& name, bool table, const Origin& place, const ForeignNames& names);
/// A key of `section`.
Diagnostic unknown_key(const std::string& section, const std::string& name, const Origin& place,
                       const ForeignNames& names);
/// A key or section in `unset`.
Diagnostic unknown_removal(const std::string& name, const Origin& place, const ForeignNames& names);

}  // namespace runner
