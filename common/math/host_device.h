#pragma once

// Marks the formulas of common/math as functions for both compilers: host and device code of nvcc,
// and the CPU's compiler.
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif
