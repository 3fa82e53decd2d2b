// Functions whose loops are vectorised once for each instruction set. The dynamic loader selects one at start-up.
#pragma once

// Sanitizers are not initialised yet when the loader selects a clone.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RUNNER_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define RUNNER_VECTOR_CLONES
#endif
