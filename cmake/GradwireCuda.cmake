# CUDA: the host side (src/cuda/*.c) is always part of the library; with GW_CUDA every src/cuda/*.cu becomes a fat binary
# and a C array. nvcc is called as a plain tool, so that neither the CUDA runtime nor C++ gets into the library.
#
# GW_CUDA: OFF, ON (an error without nvcc), AUTO (ON if there is an nvcc).

set(GW_CUDA_ARCHS "80;90;100" CACHE STRING "Compute capabilities of the kernels; the last one is also stored as PTX")
set(gw_nvcc_flags -std=c++17 -O3 -fmad=false -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)

find_program(GW_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
mark_as_advanced(GW_NVCC)

file(GLOB gw_cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.c)
list(APPEND gw_sources ${gw_cuda_host})
file(GLOB gw_cuda_devices CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
set(gw_links "")

if(GW_CUDA STREQUAL "AUTO" AND NOT GW_NVCC)
    message(STATUS "gradwire: no nvcc: the library is built without CUDA kernels")
    set(GW_CUDA OFF)
endif()

if(GW_CUDA)
    if(NOT GW_NVCC)
        message(FATAL_ERROR "GW_CUDA is on but no nvcc was found")
    endif()
    get_filename_component(gw_nvcc_folder ${GW_NVCC} DIRECTORY)
    find_program(GW_BIN2C bin2c HINTS ${gw_nvcc_folder} REQUIRED)
    mark_as_advanced(GW_BIN2C)

    set(targets "")
    foreach(arch ${GW_CUDA_ARCHS})
        list(APPEND targets -gencode=arch=compute_${arch},code=sm_${arch})
        set(newest ${arch})
    endforeach()
    list(APPEND targets -gencode=arch=compute_${newest},code=compute_${newest})

    set(folder ${PROJECT_BINARY_DIR}/cuda)
    file(MAKE_DIRECTORY ${folder})
    set(declarations "")
    set(entries "")
    foreach(source ${gw_cuda_devices})
        get_filename_component(stem ${source} NAME_WE)
        add_custom_command(OUTPUT ${folder}/image_${stem}.c
            COMMAND ${GW_NVCC} ${gw_nvcc_flags} ${targets} -fatbin -MD -MF ${folder}/${stem}.d -MT ${folder}/image_${stem}.c
                    -o ${folder}/${stem}.fatbin ${source}
            COMMAND ${GW_BIN2C} --const --type longlong --name gw_cuda_image_${stem} ${folder}/${stem}.fatbin
                    > ${folder}/image_${stem}.c
            DEPENDS ${source} DEPFILE ${folder}/${stem}.d COMMENT "CUDA ${stem}" VERBATIM)
        list(APPEND gw_sources ${folder}/image_${stem}.c)
        # What bin2c writes is not ours to lint.
        set_source_files_properties(${folder}/image_${stem}.c PROPERTIES COMPILE_OPTIONS "-w")
        string(APPEND declarations "extern const unsigned long long gw_cuda_image_${stem}[];\n")
        string(APPEND entries "    {\"${stem}\", gw_cuda_image_${stem}},\n")
    endforeach()
    file(CONFIGURE OUTPUT ${folder}/cuda_images.c @ONLY CONTENT
"/* Made by the build: the fat binaries in this library. */
#include \"cuda/cuda_handle.h\"

@declarations@
const gw_cuda_image gw_cuda_images[] = {
@entries@    {NULL, NULL},
};
")
    list(APPEND gw_sources ${folder}/cuda_images.c)
    list(APPEND gw_definitions GW_HAVE_CUDA=1)
    list(APPEND gw_links ${CMAKE_DL_LIBS})
    message(STATUS "gradwire: CUDA kernels for ${GW_CUDA_ARCHS}")
endif()
