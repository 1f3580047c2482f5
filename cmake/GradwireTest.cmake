# Tests are added by gw_add_test() and gw_add_unit_test() only: tests/tree/test_costs.py finds others.
#
# Costs are seconds of one idle core in the release build: fast < 1, medium < 10, slow more. ctest starts slow tests first.
# Labels:
#
#   cost-COST  every test; the timeout follows from it
#   quick      run by `scripts/test quick`
#   nightly    run by `scripts/test nightly` only
#   once       does not depend on how the tree was configured: run in the release build only
#   threads    run under ThreadSanitizer
#   mpi        run by stage mpi of scripts/test

set(gw_timeout_fast 300)
set(gw_timeout_medium 900)
set(gw_timeout_slow 1800)
set(gw_seconds_fast 1)
set(gw_seconds_medium 10)
set(gw_seconds_slow 60)

# Builds the programs of the quick tests.
add_custom_target(quick_tests)

# gw_add_test(NAME COST [SKIPPABLE] COMMAND word ... [LABELS label ...] [ENVIRONMENT assignment ...])
#   SKIPPABLE: exit status 77 means skipped, and a line of output that begins with SKIP says why.
function(gw_add_test name cost)
    cmake_parse_arguments(PARSE_ARGV 2 arg "SKIPPABLE" "" "COMMAND;LABELS;ENVIRONMENT")
    add_test(NAME ${name} COMMAND ${arg_COMMAND})
    set_tests_properties(${name} PROPERTIES LABELS "cost-${cost};${arg_LABELS}" TIMEOUT ${gw_timeout_${cost}}
                         COST ${gw_seconds_${cost}}
                         ENVIRONMENT "${arg_ENVIRONMENT}")
    if(arg_SKIPPABLE)
        set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
    endif()
    if("quick" IN_LIST arg_LABELS)
        foreach(word ${arg_COMMAND})
            string(REGEX REPLACE "^\\$<TARGET_FILE:(.*)>$" "\\1" word "${word}")
            if(TARGET ${word})
                add_dependencies(quick_tests ${word})
            endif()
        endforeach()
    endif()
endfunction()

# gw_add_unit_test(NAME COST SOURCES source ... LIBRARIES library ... [LABELS ...] [ENVIRONMENT ...])
#   A cmocka program, called like its first source, and its test. Without cmocka nothing is added.
function(gw_add_unit_test name cost)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT")
    if(NOT TARGET PkgConfig::cmocka)
        return()
    endif()
    list(GET arg_SOURCES 0 program)
    get_filename_component(program ${program} NAME_WE)
    add_executable(${program} ${arg_SOURCES})
    target_link_libraries(${program} PRIVATE ${arg_LIBRARIES} PkgConfig::cmocka m)
    gw_add_test(${name} ${cost} COMMAND ${program} LABELS ${arg_LABELS} ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()
