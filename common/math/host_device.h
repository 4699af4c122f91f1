#pragma once

// Marks the formulas of common/math as functions for both compilers: nvcc's host and device, and
// the CPU's.
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif
