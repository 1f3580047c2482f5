! Sums of MPI_REAL from Fortran, by `use mpi` and by `use mpi_f08`, under a library that they do not know.
!
! SPDX-License-Identifier: BSD-2-Clause
module check
    implicit none
    integer, parameter :: len = 300001
contains
    subroutine fill(values, rank)
        real, intent(out) :: values(len)
        integer, intent(in) :: rank
        integer :: i
        do i = 1, len
            values(i) = sin(real(i) * 0.37 + real(rank)) * 2.0**(-mod(i / 4096, 9))
        end do
    end subroutine

    ! 1 if the squared error is above the share `bound` of the squares of contributions and sum
    integer function is_bad(values, size, bound)
        real, intent(in) :: values(len)
        integer, intent(in) :: size
        double precision, intent(in) :: bound
        double precision :: exact(len), square
        real :: one(len)
        integer :: r
        exact = 0
        square = 0
        do r = 0, size - 1
            call fill(one, r)
            exact = exact + one
            square = square + sum(dble(one)**2)
        end do
        square = square + sum(exact**2)
        is_bad = merge(0, 1, sum((values - exact)**2) <= bound * square .and. any(values /= real(exact)))
    end function
end module

subroutine with_mpi(bad)
    use mpi
    use check
    implicit none
    integer, intent(inout) :: bad
    integer :: rank, size, ierror, info, comm, request(2), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
    logical :: flag
    real, asynchronous, save :: values(len), sums(len), more(len)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
    call fill(values, rank)
    call MPI_Allreduce(values, sums, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
    bad = bad + is_bad(sums, size, 0.008d0)
    call MPI_Iallreduce(values, sums, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request(1), ierror)
    call MPI_Iallreduce(values, more, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request(2), ierror)
    call MPI_Waitall(2, request, statuses, ierror)
    bad = bad + is_bad(sums, size, 0.008d0) + is_bad(more, size, 0.008d0)
    call MPI_Allreduce(MPI_IN_PLACE, values, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
    bad = bad + is_bad(values, size, 0.008d0)
    call fill(values, rank)
    call MPI_Iallreduce(MPI_IN_PLACE, values, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request(1), ierror)
    flag = .false.
    do while (.not. flag)
        call MPI_Test(request(1), flag, status, ierror)
    end do
    bad = bad + is_bad(values, size, 0.008d0)
    ! A communicator with gradwire=off: MPI's own sums
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'gradwire', 'off', ierror)
    call MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, comm, ierror)
    call MPI_Allreduce(values, sums, len, MPI_REAL, MPI_SUM, comm, ierror)
    call PMPI_Allreduce(values, more, len, MPI_REAL, MPI_SUM, comm, ierror)
    bad = bad + merge(1, 0, any(sums /= more))
    call MPI_Comm_free(comm, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_Pcontrol(1)
end subroutine

subroutine with_mpi_f08(bad)
    use mpi_f08
    use check
    implicit none
    integer, intent(inout) :: bad
    integer :: rank, size
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    type(MPI_Info) :: info
    type(MPI_Comm) :: comm
    real, asynchronous, save :: values(len), sums(len), more(len)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, size)
    call fill(values, rank)
    call MPI_Allreduce(values, sums, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    bad = bad + is_bad(sums, size, 0.008d0)
    call MPI_Iallreduce(values, sums, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, request)
    call MPI_Wait(request, status)
    bad = bad + is_bad(sums, size, 0.008d0)
    call MPI_Allreduce(MPI_IN_PLACE, values, len, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    bad = bad + is_bad(values, size, 0.008d0)
    call MPI_Info_create(info)
    call MPI_Info_set(info, 'gradwire', 'off')
    call MPI_Comm_dup(MPI_COMM_WORLD, comm)
    call MPI_Comm_set_info(comm, info)
    call MPI_Allreduce(values, sums, len, MPI_REAL, MPI_SUM, comm)
    call PMPI_Allreduce(values, more, len, MPI_REAL, MPI_SUM, comm)
    bad = bad + merge(1, 0, any(sums /= more))
    call MPI_Comm_free(comm)
    call MPI_Info_free(info)
end subroutine

program mpi_unaware_fortran
    use mpi
    implicit none
    integer :: bad, all, ierror
    bad = 0
    call MPI_Init(ierror)
    call with_mpi(bad)
    call with_mpi_f08(bad)
    call MPI_Allreduce(bad, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call MPI_Finalize(ierror)
    if (all /= 0) then
        print *, 'wrong sums:', all
        stop 1
    end if
end program
