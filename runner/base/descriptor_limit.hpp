// The number of files that this process may have open.
#pragma once
#include <cstdint>
#include <string>

namespace runner {

/// If the limit is below `needed`, raises it to that or to 65,536, whichever is higher, as far as this user may (the hard limit). Throws
/// Error(environment) that names `purpose`, both numbers and a remedy if that does not suffice. `purpose`: "rank 0 of 1,024 over Gloo".
void raise_descriptor_limit(int64_t needed, const std::string& purpose);

}  // namespace runner
