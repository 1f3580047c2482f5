/*
 * Fortran calls that are the same with both MPIs: end and communicators. A file defines before
 * GW_MPI_FORTRAN(name, NAME, (parameters)), whose uses have a body that calls the function intercepted in C.
 *
 * SPDX-License-Identifier: BSD-2-Clause
 */
static void gw_mpi_return(MPI_Fint *ierror, int status)
{
    if (ierror != NULL) {
        *ierror = (MPI_Fint)status;
    }
}

GW_MPI_FORTRAN(finalize, FINALIZE, (MPI_Fint * ierror))
{
    gw_mpi_return(ierror, MPI_Finalize());
}

/* `c_name` frees *comm. */
#define GW_MPI_FORTRAN_FREES(name, upper, c_name)                                                            \
    GW_MPI_FORTRAN(name, upper, (MPI_Fint * comm, MPI_Fint * ierror))                                        \
    {                                                                                                        \
        MPI_Comm handle = PMPI_Comm_f2c(*comm);                                                              \
        const int status = c_name(&handle);                                                                  \
        *comm = PMPI_Comm_c2f(handle);                                                                       \
        gw_mpi_return(ierror, status);                                                                       \
    }

GW_MPI_FORTRAN_FREES(comm_free, COMM_FREE, MPI_Comm_free)
GW_MPI_FORTRAN_FREES(comm_disconnect, COMM_DISCONNECT, MPI_Comm_disconnect)

GW_MPI_FORTRAN(comm_set_info, COMM_SET_INFO, (const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *ierror))
{
    gw_mpi_return(ierror, MPI_Comm_set_info(PMPI_Comm_f2c(*comm), PMPI_Info_f2c(*info)));
}

GW_MPI_FORTRAN(comm_dup_with_info, COMM_DUP_WITH_INFO,
               (const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *newcomm, MPI_Fint *ierror))
{
    MPI_Comm handle = MPI_COMM_NULL;
    const int status = MPI_Comm_dup_with_info(PMPI_Comm_f2c(*comm), PMPI_Info_f2c(*info), &handle);
    *newcomm = PMPI_Comm_c2f(handle);
    gw_mpi_return(ierror, status);
}

GW_MPI_FORTRAN(comm_split_type, COMM_SPLIT_TYPE,
               (const MPI_Fint *comm, const MPI_Fint *type, const MPI_Fint *key, const MPI_Fint *info,
                MPI_Fint *newcomm, MPI_Fint *ierror))
{
    MPI_Comm handle = MPI_COMM_NULL;
    const int status =
        MPI_Comm_split_type(PMPI_Comm_f2c(*comm), (int)*type, (int)*key, PMPI_Info_f2c(*info), &handle);
    *newcomm = PMPI_Comm_c2f(handle);
    gw_mpi_return(ierror, status);
}

GW_MPI_FORTRAN(pcontrol, PCONTROL, (const MPI_Fint *level))
{
    (void)MPI_Pcontrol((int)*level);
}
