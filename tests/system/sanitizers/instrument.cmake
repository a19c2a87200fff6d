# Has a sanitizer of this machine's compiler watch our part of the engine, and ggml where threads meet.
#
#   SANITIZER   what -fsanitize= names
#
# The rest of llama.cpp stays as it is, so that both builds share its objects. Its locks are seen all the same:
# they are those of the C library.

add_compile_options(-O1)
cmake_language(DEFER CALL instrument)

function(programs_of folder found)
    get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
        get_target_property(kind ${target} TYPE)
        if(kind STREQUAL EXECUTABLE)
            list(APPEND ${found} ${target})
        endif()
    endforeach()
    get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
    foreach(inner ${folders})
        programs_of("${inner}" ${found})
    endforeach()
    set(${found} "${${found}}" PARENT_SCOPE)
endfunction()

function(instrument)
    add_executable(graph "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/graph.c")
    target_include_directories(graph PRIVATE "${ARMLOAD_NATIVE}")
    target_link_libraries(graph PRIVATE armload-weights ggml)
    set_target_properties(graph PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
    target_link_options(graph PRIVATE
        -Wl,--wrap=mmap -Wl,--wrap=armload_lock_pieces -Wl,--wrap=armload_unlock_pieces)
    set(watched graph armload-weights armload-trace armload-score)
    if(SANITIZER STREQUAL thread)
        list(APPEND watched ggml ggml-base ggml-cpu)
    endif()
    foreach(target ${watched})
        target_compile_options(${target} PRIVATE -fsanitize=${SANITIZER} -g1 -fno-omit-frame-pointer)
    endforeach()
    # A thread that waits for another one lets it run, where others want the cores as well.
    target_compile_options(ggml-cpu PRIVATE
        $<$<COMPILE_LANGUAGE:C>:-include> $<$<COMPILE_LANGUAGE:C>:sched.h>
        $<$<COMPILE_LANGUAGE:C>:-D__builtin_ia32_pause=sched_yield>)
    # Of a service, these compute nothing, and take longest to compile.
    foreach(target server-context llama-server-impl cpp-httplib mtmd)
        target_compile_options(${target} PRIVATE -O0)
    endforeach()
    programs_of("${CMAKE_SOURCE_DIR}" programs)
    foreach(program ${programs})
        # There is no static sanitizer that the C library would be linked with.
        get_target_property(options ${program} LINK_OPTIONS)
        list(REMOVE_ITEM options -static)
        set_target_properties(${program} PROPERTIES LINK_OPTIONS "${options};-fsanitize=${SANITIZER}")
    endforeach()
endfunction()
