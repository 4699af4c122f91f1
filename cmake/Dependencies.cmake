# Everything comes from Debian's packages: see deploy/install-dependencies.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(absl REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Eigen3 3.4 REQUIRED CONFIG)
find_package(spdlog REQUIRED)
find_package(RocksDB REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(libzstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(libxxhash REQUIRED IMPORTED_TARGET libxxhash)
# Its CMake file would ask for what its HTTP parts need, which are not used.
pkg_check_modules(prometheus_cpp REQUIRED IMPORTED_TARGET prometheus-cpp-core)
include(GoogleTest)

# Debian's oneDNN package file asks for OpenCL, which we do not use: the library is found by hand.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR dnnl.h REQUIRED)
add_library(tessera_dnnl INTERFACE)
target_include_directories(tessera_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(tessera_dnnl INTERFACE ${DNNL_LIBRARY})

# Debian's ONNX package has no CMake file: only the messages of the format are used, not its op definitions.
find_library(ONNX_PROTO_LIBRARY onnx_proto REQUIRED)
find_path(ONNX_INCLUDE_DIR onnx/onnx_pb.h REQUIRED)
add_library(tessera_onnx_proto INTERFACE)
target_include_directories(tessera_onnx_proto SYSTEM INTERFACE ${ONNX_INCLUDE_DIR})
target_link_libraries(tessera_onnx_proto INTERFACE ${ONNX_PROTO_LIBRARY} protobuf::libprotobuf)
