# bench/peers/llama_cpp.cmake: read by llama.cpp's CMakeLists.txt after its project(): leaves out the library of its
# programs, which takes half of the time and which the Python package does not use.
set(LLAMA_BUILD_COMMON OFF)
