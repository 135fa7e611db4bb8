// bench/peers/mkl_avx512.cc: preloaded before MKL, makes it use AVX-512 on every processor that has it (it asks who
// made the processor).
extern "C" {
int mkl_serv_intel_cpu_true() { return 1; }
int mkl_serv_intel_cpu() { return 1; }
}
