# Targets: gradwire (the library) and gradwire_testing (the same as a static library with GW_TESTING=1, for tests that look
# inside). What does not depend on GW_TESTING is compiled once, for both. Control lives in src/core, the specification in src/scalar, one folder per SIMD backend.

file(GLOB gw_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/core/*.c ${PROJECT_SOURCE_DIR}/src/gcomp/*.c
     ${PROJECT_SOURCE_DIR}/src/thc/*.c ${PROJECT_SOURCE_DIR}/src/collective/*.c
     ${PROJECT_SOURCE_DIR}/src/classic/*.c ${PROJECT_SOURCE_DIR}/src/scalar/*.c)
set(gw_definitions "")

# Functions and loops at cache lines, so that the speed of a kernel does not depend on what is linked before it: that was
# up to 1.9 times for the tightest loops on Zen 4.
set(gw_kernel_options "")
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    set(gw_kernel_options -falign-functions=64 -falign-loops=64)
endif()
file(GLOB gw_scalar_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/scalar/*.c)
set_source_files_properties(${gw_scalar_sources} PROPERTIES COMPILE_OPTIONS "${gw_kernel_options}")

# gw_add_backend(NAME FLAG...) compiles src/NAME with these flags, and defines GW_HAVE_<NAME>=1, by which
# src/core/backends.def takes the backend in. -fno-lto keeps the linker from moving such code into functions that run
# before dispatch has looked at the CPU. No -mfma: see -ffp-contract=off. src/core/cpu.c requires every instruction set
# that a flag here enables; for a file with more flags, init_<backend>.c tests the matching GW_CPU flag before it takes
# the kernels of that file.
file(READ ${PROJECT_SOURCE_DIR}/src/core/backends.def gw_backends)
function(gw_add_backend name)
    string(TOUPPER ${name} upper)
    if(NOT gw_backends MATCHES "GW_CPU_BACKEND\\([0-7], ${name}, ${upper},")
        message(FATAL_ERROR "gradwire: src/core/backends.def has no backend ${name}")
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c)
    set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${gw_kernel_options};${ARGN}")
    set(gw_sources ${gw_sources} ${sources} PARENT_SCOPE)
    set(gw_definitions ${gw_definitions} GW_HAVE_${upper}=1 PARENT_SCOPE)
    message(STATUS "gradwire: backend ${name}")
endfunction()

# Options beyond those of the folder; nothing happens if the file does not exist.
function(gw_add_file_options file)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/${file} APPEND PROPERTY COMPILE_OPTIONS ${ARGN})
endfunction()

if(GW_SIMDE_NEON)
    # In place of the machine's own backends, so that NEON code is what every test runs.
    find_path(GW_SIMDE_INCLUDE simde/arm/neon.h REQUIRED)
    # gcc 12.2 crashes on some of these files at -O3; clang warns where SIMDe asks for loops to be vectorised.
    # SIMDe's vmull_u32 multiplies 64-bit lanes as signed numbers, which UBSan reports; the low 64 bits are the same.
    gw_add_backend(neon -msse4.2 -mf16c $<$<CONFIG:Release>:-O2> -fno-sanitize=signed-integer-overflow
                   $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>)
    list(APPEND gw_definitions GW_SIMDE_NEON=1)
elseif(GW_SIMD)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
        gw_add_backend(avx2 -mavx2 -mbmi -mbmi2 -mlzcnt -mpopcnt -mf16c -fno-lto)
        gw_add_backend(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2
                       -mbmi -mbmi2 -mlzcnt -mpopcnt -mf16c -fno-lto)
        gw_add_file_options(avx2/crc32c_avx2.c -mpclmul)
        gw_add_file_options(avx512/crc32c_avx512.c -mpclmul -mvpclmulqdq)
    elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
        gw_add_backend(neon -fno-lto)
        gw_add_file_options(neon/crc32c_neon.c -march=armv8-a+crc)
    endif()
endif()

include(cmake/GradwireCuda.cmake)

set(gw_sources_by_testing ${gw_sources})
list(FILTER gw_sources_by_testing INCLUDE REGEX "/src/core/(cpu|cpu_testing|dispatch)\\.c$")
list(REMOVE_ITEM gw_sources ${gw_sources_by_testing})
add_library(gradwire_objects OBJECT EXCLUDE_FROM_ALL ${gw_sources})
add_library(gradwire ${gw_sources_by_testing} $<TARGET_OBJECTS:gradwire_objects>)
add_library(gradwire::gradwire ALIAS gradwire)
set_target_properties(gradwire PROPERTIES VERSION ${PROJECT_VERSION}
                                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

add_library(gradwire_testing STATIC EXCLUDE_FROM_ALL ${gw_sources_by_testing} $<TARGET_OBJECTS:gradwire_objects>)
target_compile_definitions(gradwire_testing PUBLIC GW_TESTING=1 ${gw_definitions})
target_include_directories(gradwire_testing PUBLIC ${PROJECT_SOURCE_DIR}/src)

foreach(target gradwire gradwire_objects)
    target_compile_definitions(${target} PRIVATE ${gw_definitions})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endforeach()
foreach(target gradwire gradwire_objects gradwire_testing)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${target} PUBLIC c_std_11)
endforeach()
foreach(target gradwire gradwire_testing)
    target_link_libraries(${target} PRIVATE ${gw_links})
endforeach()
