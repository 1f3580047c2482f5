# The MPI adapter, once for each MPI that is found: their ABIs differ. GW_MPI: AUTO builds what is there, ON fails if there
# is none, OFF builds nothing. Debian has both side by side, with wrapper compilers of their own names. AUTO builds nothing
# with sanitizers, whose runtime must be loaded before any other library, and nothing where gradwire is vendored.

set(GW_MPI AUTO CACHE STRING "MPI adapter: OFF, ON (needs an MPI) or AUTO")
set_property(CACHE GW_MPI PROPERTY STRINGS AUTO ON OFF)
set(gw_mpis "")
set(gw_mpi_library_openmpi gradwire_ompi)
set(gw_mpi_library_mpich gradwire_mpich)

# gw_find_mpi(NAME): target gw_mpi_NAME with the includes and libraries that mpicc.NAME reports.
function(gw_find_mpi name)
    string(TOUPPER ${name} upper)
    find_program(GW_MPICC_${upper} mpicc.${name})
    find_program(GW_MPIRUN_${upper} NAMES mpirun.${name} mpiexec.${name})
    mark_as_advanced(GW_MPICC_${upper} GW_MPIRUN_${upper})
    if(NOT GW_MPICC_${upper} OR NOT GW_MPIRUN_${upper})
        return()
    endif()
    execute_process(COMMAND ${GW_MPICC_${upper}} -show OUTPUT_VARIABLE line RESULT_VARIABLE result ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT result EQUAL 0)
        return()
    endif()
    separate_arguments(words UNIX_COMMAND "${line}")
    add_library(gw_mpi_${name} INTERFACE)
    foreach(word ${words})
        if(word MATCHES "^-I(.*)$")
            target_include_directories(gw_mpi_${name} SYSTEM INTERFACE ${CMAKE_MATCH_1})
        elseif(word MATCHES "^-L(.*)$")
            target_link_directories(gw_mpi_${name} INTERFACE ${CMAKE_MATCH_1})
        elseif(word MATCHES "^-l(.*)$")
            target_link_libraries(gw_mpi_${name} INTERFACE ${CMAKE_MATCH_1})
        endif()
    endforeach()
    # MPICH declares how it accesses arrays of statuses; gcc then takes MPI_STATUSES_IGNORE for a small array
    target_compile_options(gw_mpi_${name} INTERFACE $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
    set(gw_mpis ${gw_mpis} ${name} PARENT_SCOPE)
endfunction()

set(gw_mpi_wanted ${GW_MPI})
if(GW_MPI STREQUAL "AUTO" AND (NOT gw_is_top OR GW_SANITIZE OR GW_FUZZ))
    set(gw_mpi_wanted OFF)
endif()
if(gw_mpi_wanted AND NOT CMAKE_CROSSCOMPILING)
    find_package(Threads QUIET)
    if(Threads_FOUND)
        gw_find_mpi(openmpi)
        gw_find_mpi(mpich)
    endif()
    if(NOT gw_mpis AND NOT GW_MPI STREQUAL "AUTO")
        message(FATAL_ERROR "gradwire: GW_MPI is on, but there is no mpicc.openmpi and no mpicc.mpich (scripts/deps mpi)")
    endif()
    if(gw_mpis)
        message(STATUS "gradwire: MPI adapter for ${gw_mpis}")
    endif()
endif()

# How tests run ranks. They share cores: Open MPI yields where it would spin; copies between processes are not permitted in containers.
set(gw_mpirun_openmpi ${GW_MPIRUN_OPENMPI} --allow-run-as-root --oversubscribe --bind-to none
    --mca mpi_yield_when_idle 1 --mca btl_vader_single_copy_mechanism none)
set(gw_mpirun_mpich ${GW_MPIRUN_MPICH})
