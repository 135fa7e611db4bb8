// src/mpi/family.cpp: compiles only with Open MPI, whose programs and MPICH's are not interchangeable.
#include <mpi.h>
#ifndef OPEN_MPI
#error another family
#endif
int main() {}
