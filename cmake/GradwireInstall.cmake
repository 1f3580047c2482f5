# Install rules: libraries, headers, command, CMake package (gradwire::gradwire, components plan and runtime: gradwire::plan,
# gradwire::runtime) and pkg-config files.

include(CMakePackageConfigHelpers)

install(TARGETS gradwire EXPORT gradwire-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN cuda.h EXCLUDE PATTERN "runtime*.h" EXCLUDE)
# Device entry points, for kernels of the caller's own: includes as in the source tree, below gradwire/device.
set(gw_device_headers crc32c.cuh device.cuh gcomp_decode.cuh gcomp_decode_state.cuh gcomp_device.cuh gcomp_encode.cuh
    gcomp_encode_state.cuh gcomp_frame.cuh gcomp_join.cuh gcomp_merge.cuh gcomp_params.h gcomp_partition.cuh gcomp_parts.cuh
    gcomp_rank.cuh gcomp_round.cuh gcomp_store.cuh gcomp_tree.cuh gcomp_write.cuh)
list(TRANSFORM gw_device_headers PREPEND ${PROJECT_SOURCE_DIR}/src/cuda/)
if(GW_INSTALL_CUDA)
    install(FILES ${PROJECT_SOURCE_DIR}/include/gradwire/cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
    install(FILES ${gw_device_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/device/cuda)
    install(FILES ${PROJECT_SOURCE_DIR}/src/core/bytes.h ${PROJECT_SOURCE_DIR}/src/core/half.h
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/device/core)
endif()
if(TARGET gradwire_cli)
    install(TARGETS gradwire_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(EXPORT gradwire-targets NAMESPACE gradwire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradwire-config.cmake.in
                              ${PROJECT_BINARY_DIR}/gradwire-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwire-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradwire-config.cmake ${PROJECT_BINARY_DIR}/gradwire-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)

# The .pc file finds its prefix from its own place, so an installed tree may be moved.
file(RELATIVE_PATH gw_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" gw_pc_to_prefix "${gw_pc_to_prefix}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/gradwire.pc.in ${PROJECT_BINARY_DIR}/gradwire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gradwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# gw_install_beside(NAME FOLDER HEADER...): a library beside the codecs, with the .pc file in FOLDER.
function(gw_install_beside name folder)
    install(TARGETS gradwire-${name} EXPORT gradwire-${name}-targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
            RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(EXPORT gradwire-${name}-targets NAMESPACE gradwire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
    list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE headers)
    install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
    configure_file(${PROJECT_SOURCE_DIR}/${folder}/gradwire-${name}.pc.in ${PROJECT_BINARY_DIR}/gradwire-${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/gradwire-${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

if(GW_PLAN)
    gw_install_beside(plan planner planner/include/gradwire/plan.h)
endif()
if(TARGET gradwire-runtime)
    gw_install_beside(runtime src/runtime include/gradwire/runtime.h include/gradwire/runtime_thc.h)
endif()
