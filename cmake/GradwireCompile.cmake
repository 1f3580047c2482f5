# How every C and C++ file of this tree is compiled.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Results are equal bit for bit on every backend only if no compiler fuses a multiply and an add (docs/numerics.md).
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

set(gw_warnings_c -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wundef -Wmissing-prototypes
    -Wstrict-prototypes)
set(gw_warnings_cxx -Wall -Wextra -Wpedantic -Wshadow -Wundef)
if(gw_is_top)
    add_compile_options("$<$<COMPILE_LANGUAGE:C>:${gw_warnings_c}>" "$<$<COMPILE_LANGUAGE:CXX>:${gw_warnings_cxx}>")
endif()
if(GW_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()

if(GW_SANITIZE)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${GW_SANITIZE}>
                        $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>
                        $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
    add_link_options(-fsanitize=${GW_SANITIZE})
endif()

if(GW_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "GW_FUZZ needs clang (libFuzzer); use the preset `fuzz` or -DCMAKE_C_COMPILER=clang")
    endif()
    # Coverage instrumentation for all code; only the fuzz targets link libFuzzer's main().
    add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
