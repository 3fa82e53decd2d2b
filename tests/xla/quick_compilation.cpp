// The programs of this test program are compiled with XLA's optimizations, but without those of LLVM, which takes half
// of the time. Tests in tests/pjrt and tests/commands run programs with all of them.
#include <cstdlib>

namespace {

[[maybe_unused]] const int flags_are_set = setenv("XLA_FLAGS", "--xla_backend_optimization_level=0", /*overwrite=*/0);

}  // namespace
