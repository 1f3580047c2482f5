! As mpi_crossed.c, from Fortran: odd ranks complete a request of one communicator before a blocking call on another
! one, even ranks after it. By `use mpi` and by `use mpi_f08`.
!
! SPDX-License-Identifier: BSD-2-Clause
module crossed
    implicit none
    integer, parameter :: len = 40001
contains
    subroutine fill(values, rank)
        real, intent(out) :: values(len)
        integer, intent(in) :: rank
        integer :: i
        do i = 1, len
            values(i) = sin(real(i) * 0.37 + real(rank))
        end do
    end subroutine

    ! 1 if the squared error is not that of a compressed sum
    integer function is_bad(values, size)
        real, intent(in) :: values(len)
        integer, intent(in) :: size
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
        is_bad = merge(0, 1, sum((values - exact)**2) <= 0.008d0 * square .and. any(values /= real(exact)))
    end function
end module

subroutine with_mpi(bad)
    use mpi
    use crossed
    implicit none
    integer, intent(inout) :: bad
    integer :: rank, size, ierror, request, first, second, grid, token, got, kind, status(MPI_STATUS_SIZE)
    real, asynchronous, save :: values(len), sums(len)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
    call fill(values, rank)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, rank, second, ierror)
    do kind = 1, 4
        call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.false.], .false., grid, ierror)
        call MPI_Comm_dup(grid, first, ierror)
        call MPI_Iallreduce(values, sums, len, MPI_REAL, MPI_SUM, first, request, ierror)
        if (mod(rank, 2) == 1) call MPI_Wait(request, status, ierror)
        token = rank
        got = -1
        select case (kind)
        case (1)
            call MPI_Barrier(second, ierror)
        case (2)
            call MPI_Bcast(token, 1, MPI_INTEGER, 1, second, ierror)
            if (token /= 1) bad = bad + 1
        case (3)
            call MPI_Sendrecv(token, 1, MPI_INTEGER, ieor(rank, 1), 1, got, 1, MPI_INTEGER, ieor(rank, 1), 1, second, &
                              status, ierror)
            if (got /= ieor(rank, 1)) bad = bad + 1
        case default
            call MPI_Allreduce(token, got, 1, MPI_INTEGER, MPI_SUM, second, ierror)
            if (got /= size * (size - 1) / 2) bad = bad + 1
        end select
        if (mod(rank, 2) == 0) call MPI_Wait(request, status, ierror)
        bad = bad + is_bad(sums, size)
        call MPI_Comm_free(first, ierror)
        call MPI_Comm_free(grid, ierror)
    end do
    call MPI_Comm_free(second, ierror)
end subroutine

subroutine with_mpi_f08(bad)
    use mpi_f08
    use crossed
    implicit none
    integer, intent(inout) :: bad
    integer :: rank, size, token, kind
    type(MPI_Request) :: request
    type(MPI_Comm) :: first, second
    real, asynchronous, save :: values(len), sums(len)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, size)
    call fill(values, rank)
    call MPI_Comm_dup(MPI_COMM_WORLD, second)
    do kind = 1, 3
        call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, first)
        call MPI_Iallreduce(values, sums, len, MPI_REAL, MPI_SUM, first, request)
        if (mod(rank, 2) == 1) call MPI_Wait(request, MPI_STATUS_IGNORE)
        token = rank
        select case (kind)
        case (1)
            call MPI_Barrier(second)
        case (2)
            call MPI_Bcast(token, 1, MPI_INTEGER, 1, second)
            if (token /= 1) bad = bad + 1
        case default
            if (mod(rank, 2) == 1) then
                call MPI_Send(token, 1, MPI_INTEGER, rank - 1, 2, second)
            else
                call MPI_Probe(rank + 1, 2, second, MPI_STATUS_IGNORE)
                call MPI_Recv(token, 1, MPI_INTEGER, rank + 1, 2, second, MPI_STATUS_IGNORE)
                if (token /= rank + 1) bad = bad + 1
            end if
        end select
        if (mod(rank, 2) == 0) call MPI_Wait(request, MPI_STATUS_IGNORE)
        bad = bad + is_bad(sums, size)
        call MPI_Comm_free(first)
    end do
    call MPI_Comm_free(second)
end subroutine

program mpi_crossed_fortran
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
        print *, 'wrong:', all
        stop 1
    end if
end program
