#pragma once
// Functions whose loops the compiler turns into vectors once for each instruction set; the loader picks at start-up.

// Sanitizers are not ready yet when the loader asks which clone to take.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RUNNER_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define RUNNER_VECTOR_CLONES
#endif
