/*
 * Fortran with Open MPI, whose bindings call the PMPI names. placeholder
 */
#include "mpi_internal.h"
typedef int gw_mpi_fortran_nothing;
