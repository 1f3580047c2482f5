# Packages that parts of the tree need; the library needs none. A part whose packages are missing is left out, and one line
# says so. With GW_COMPLETE that is an error, so that scripts/test loses no test.

option(GW_COMPLETE "Fail if a package is missing, instead of leaving out what needs it" OFF)

find_package(PkgConfig QUIET)

# gw_need(PART TITLE PACKAGE...): switches PART off if a package is missing. A PACKAGE is `module=Debian package`: the name
# of a pkg-config module, whose target is PkgConfig::module, or of another CMake target.
macro(gw_need part title)
    set(gw_missing "")
    foreach(package ${ARGN})
        string(REGEX MATCH "^(.*)=(.*)$" package ${package})
        set(module ${CMAKE_MATCH_1})
        set(debian ${CMAKE_MATCH_2})
        if(NOT module MATCHES "::" AND PkgConfig_FOUND AND NOT TARGET PkgConfig::${module})
            pkg_check_modules(${module} QUIET IMPORTED_TARGET ${module})
        endif()
        if(NOT TARGET ${module} AND NOT TARGET PkgConfig::${module})
            list(APPEND gw_missing ${debian})
        endif()
    endforeach()
    if(gw_missing)
        list(JOIN gw_missing ", " gw_missing)
        if(GW_COMPLETE)
            message(FATAL_ERROR "gradwire: ${title} cannot be built, missing: ${gw_missing}")
        endif()
        message(STATUS "gradwire: without ${title}, missing: ${gw_missing}")
        set(${part} OFF)
    endif()
endmacro()

if(GW_TOOLS)
    find_package(Threads QUIET)
    find_package(ZLIB QUIET)
    gw_need(GW_TOOLS "the command" Threads::Threads=libc6-dev jansson=libjansson-dev yajl=libyajl-dev
            ZLIB::ZLIB=zlib1g-dev)
endif()
if(GW_TESTS OR GW_FUZZ)
    find_package(Threads QUIET)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    gw_need(GW_TESTS "tests" Threads::Threads=libc6-dev Python3::Interpreter=python3)
    gw_need(GW_FUZZ "fuzz targets" Threads::Threads=libc6-dev Python3::Interpreter=python3)
endif()
if(GW_TESTS AND NOT CMAKE_CROSSCOMPILING)
    gw_need(gw_unit_tests "unit tests" cmocka=libcmocka-dev)
endif()
if(GW_BENCH)
    find_package(benchmark QUIET)
    gw_need(GW_BENCH "benchmarks" jansson=libjansson-dev ZLIB::ZLIB=zlib1g-dev benchmark::benchmark=libbenchmark-dev
            libzstd=libzstd-dev liblz4=liblz4-dev)
endif()
